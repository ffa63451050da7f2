// SPDX-License-Identifier: Apache-2.0
#include "percent.hpp"

namespace verbena::cli {

namespace {

int hex_digit(char c) noexcept
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

} // namespace

result<std::string> decode_percent(std::string_view text)
{
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
        if (high < 0 || low < 0)
            return error(std::errc::invalid_argument,
                         "'%' in a URL stands before two hexadecimal digits; write %25 for a percent sign");
        const char c = static_cast<char>(high * 16 + low);
        if (c == '\0')
            return error(std::errc::invalid_argument, "a name holds no NUL");
        out += c;
        i += 2;
    }
    return out;
}

} // namespace verbena::cli
