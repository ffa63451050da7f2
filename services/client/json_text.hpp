// SPDX-License-Identifier: Apache-2.0
// Names in JSON: they are bytes, and JSON is UTF-8.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace verbena::cli {

/// item[key] = text. What is no UTF-8 stands there with U+FFFD in place of it, and all octets in item[key + "_base64"].
void put_text(nlohmann::json& item, const std::string& key, std::string_view text);
/// As `--json` prints it. Never fails for what a name holds.
std::string dump(const nlohmann::json& value);

/// RFC 4648 4, with padding.
std::string base64(std::string_view octets);

} // namespace verbena::cli
