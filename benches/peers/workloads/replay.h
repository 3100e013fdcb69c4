// Traces of real programs, which run.py has unpacked into rows of steps.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "random.h"

namespace peers {

inline Script read_script(const std::filesystem::path &path) {
  Script script;
  script.steps.resize(std::filesystem::file_size(path) / sizeof(Step));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char *>(script.steps.data()), static_cast<std::streamsize>(script.steps.size() * sizeof(Step)));
  if (!file) fail(path.string(), "cannot be read");
  script.count();
  return script;
}

template <class Contender>
void replay(Report &report) {
  if (settings().traces.empty()) return;
  std::vector<std::filesystem::path> paths;
  for (const auto &entry : std::filesystem::directory_iterator(settings().traces)) {
    if (entry.path().extension() == ".steps") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const auto &path : paths) {
    try {
      script_rows<Contender>(report, path.stem().string(), read_script(path), Room::kGrows);
    } catch (const std::exception &error) {
      report.cannot(path.stem().string(), error.what());
    }
  }
}

}  // namespace peers
