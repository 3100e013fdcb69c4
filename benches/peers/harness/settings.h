// How long to measure: set once by main, read everywhere.
#pragma once

#include <string>

namespace peers {

struct Settings {
  double repeat_ms = 3;  // one repeat of a pair's loop
  int repeats = 7;
  double team_ms = 15;  // one run of several threads
  int team_repeats = 5;
  double cap_s = 4;      // when one pass of a long script is stopped
  double warm_s = 0.3;   // how long warm passes of it are repeated
  std::string traces;    // folder of traces in the form of script.h; empty: none
};

inline Settings &settings() {
  static Settings only;
  return only;
}

}  // namespace peers
