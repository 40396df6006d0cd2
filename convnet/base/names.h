// Names in messages: lists of them, and the one that a user may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// Returns an ASCII letter in lower case, any other character as it is.
inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Returns the candidate closest to `word` within `max_edits` edits (insertions, deletions, replacements and
/// exchanges of two neighbours; case-insensitive), the first of equally close ones; "" if there is none.
/// Another program's name for a candidate (usual_name()) counts as the closest, unless `max_edits` is 0.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates, int max_edits = 2);

/// Returns the candidate that means what `word` means in another program or an older version: "bf16" for
/// "fp16", "filterSize" for "kernel_size"; "" if there is none.
std::string usual_name(std::string_view word, const std::vector<std::string>& candidates);

/// Returns how many edits a mistyped word may be away from what was meant, where there are many short words:
/// one for a word under six letters, which is near to many others, else two.
int typing_edits(std::string_view word);

/// Returns the end of a message about an unknown word: "; did you mean 'conv1'?" with the nearest candidate,
/// or "; " and `otherwise` if none is near ("" if that is empty, too).
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         const std::string& otherwise = "", int max_edits = 2);

/// Returns "a, b, c".
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace convnet
