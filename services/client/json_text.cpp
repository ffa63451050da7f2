// SPDX-License-Identifier: Apache-2.0
#include "json_text.hpp"

#include <verbena/core/printable.hpp>

namespace verbena::cli {

std::string base64(std::string_view octets)
{
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (; !octets.empty(); octets.remove_prefix(octets.size() < 3 ? octets.size() : 3)) {
        unsigned group = 0;
        for (std::size_t i = 0; i < 3; ++i)
            group = group << 8 | (i < octets.size() ? static_cast<unsigned char>(octets[i]) : 0U);
        for (std::size_t i = 0; i < 4; ++i)
            out += i <= octets.size() ? digits[group >> (18 - 6 * i) & 63] : '=';
    }
    return out;
}

void put_text(nlohmann::json& item, const std::string& key, std::string_view text)
{
    item[key] = text;
    if (!is_utf8(text))
        item[key + "_base64"] = base64(text);
}

std::string dump(const nlohmann::json& value)
{
    return value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace verbena::cli
