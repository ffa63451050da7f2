// SPDX-License-Identifier: Apache-2.0
// Which word was meant: for commands, options and keys that are not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// "tcp", for the candidates {"tcp", "iwarp"} and the word "tpc"; empty when nothing is near.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);
/// "; did you mean tcp?" or "; known: iwarp tcp".
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

} // namespace verbena

#pragma GCC visibility pop
