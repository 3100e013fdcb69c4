// One JSON line for each figure, on the standard output, as soon as it is known: what was printed survives a crash.
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <utility>

namespace peers {

inline std::string json_text(const std::string &text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

class Report {
 public:
  explicit Report(std::string workload) : workload_(std::move(workload)) {}

  // From now on figures belong to this workload.
  void workload(const std::string &name) {
    workload_ = name;
    line("\"begin\": true");
  }

  void figure(const std::string &what, const char *unit, double value, const std::string &note = "") {
    char number[64];
    std::snprintf(number, sizeof number, "%.6g", value);
    line("\"case\": " + json_text(what) + ", \"unit\": \"" + unit + "\", \"value\": " + number +
         (note.empty() ? "" : ", \"note\": " + json_text(note)));
  }

  // Why there is no figure.
  void cannot(const std::string &what, const std::string &why) {
    line("\"case\": " + json_text(what) + ", \"cannot\": " + json_text(why.substr(0, why.find('\n')).substr(0, 200)));
  }

  void fact(const std::string &name, const std::string &value) {
    line("\"fact\": " + json_text(name) + ", \"value\": " + json_text(value));
  }

  void done(double seconds) { line("\"seconds\": " + std::to_string(seconds)); }

  // Runs `body`, which gives one figure; an exception in it is the reason why there is none.
  template <class Body>
  void attempt(const std::string &what, const char *unit, Body body) {
    try {
      figure(what, unit, body());
    } catch (const std::exception &error) {
      cannot(what, error.what());
    }
  }

 private:
  void line(const std::string &fields) {
    std::printf("{\"workload\": %s, %s}\n", json_text(workload_).c_str(), fields.c_str());
    std::fflush(stdout);
  }

  std::string workload_;
};

}  // namespace peers
