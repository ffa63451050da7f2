// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/core/result.hpp>

#include <string>
#include <string_view>

namespace verbena::cli {

/// Percent-encoding undone (RFC 3986 2.1). EINVAL with the rule: two hexadecimal digits stand behind a percent sign, and no NUL comes out.
result<std::string> decode_percent(std::string_view text);

} // namespace verbena::cli
