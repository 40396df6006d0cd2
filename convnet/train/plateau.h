// Learning rates that drop when tests get no better (--plateau), like PyTorch's ReduceLROnPlateau.
#pragma once

#include <string>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/config/params.h"

namespace convnet {

/// --plateau FACTOR,TESTS[,LEAST]
struct PlateauOptions {
  double factor = 0;  ///< factor of each drop, in (0,1); 0: rates never drop
  int tests = 0;      ///< tests in a row without a better one before a drop
  double least = 0;   ///< least product of the factors
  bool on() const { return factor > 0; }
  bool operator==(const PlateauOptions&) const = default;
};

/// Parses "0.1,5", "0.1,5,0.001", or "0" for none. Like parse_value(), it returns what is wrong, or "".
std::string parse_plateau(const std::string& text, const ParamSpec&, PlateauOptions& out);
/// Returns the options as --plateau takes them.
std::string plateau_text(const PlateauOptions& options);

/// Takes a test after batch `at` into account, which is the best so far or not. Returns whether the learning
/// rates drop.
bool note_plateau(Plateau& plateau, const PlateauOptions& options, bool is_best, const Position& at);

/// Ends the drops so far if the run no longer has --plateau: from batch `at` on, the rates are those of the
/// files.
void end_plateau(Plateau& plateau, const Position& at);

}  // namespace convnet
