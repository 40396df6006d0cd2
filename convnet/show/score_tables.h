// The scores of tags and numbers as tables of a page.
#pragma once

#include <string>

#include "convnet/net/target_scores.h"

namespace convnet {

/// Returns the rows of a table of HTML, with a head: average precision, precision, recall and F1 of each tag,
/// and their means.
std::string tag_rows(const TagScores& scores);

/// Returns the rows of a table of HTML, with a head: the errors and R^2 of each number, and their means.
std::string number_rows(const NumberScores& scores);

}  // namespace convnet
