// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/printable.hpp>

namespace verbena {
namespace {

// As it stands, or all its octets as \ooo.
void append(std::string& out, std::string_view character)
{
    const auto first = static_cast<unsigned char>(character.front());
    const bool second_block = character.size() == 2 && first == 0xc2 &&
                              static_cast<unsigned char>(character[1]) < 0xa0; // to U+009F
    const bool alone = character.size() == 1 && (first < 0x20 || first >= 0x7f);
    if (!second_block && !alone) {
        out += character;
        return;
    }
    for (const char c : character) {
        const auto octet = static_cast<unsigned char>(c);
        out += {'\\', static_cast<char>('0' + (octet >> 6)), static_cast<char>('0' + (octet >> 3 & 7)),
                static_cast<char>('0' + (octet & 7))};
    }
}

} // namespace

// RFC 3629 4: no overlong forms, no surrogates, nothing beyond U+10FFFF.
std::size_t utf8_character(std::string_view text) noexcept
{
    const auto at = [text](std::size_t i) -> unsigned {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    const auto follows = [&at](std::size_t i) { return (at(i) & 0xc0) == 0x80; };
    const unsigned first = at(0);
    if (text.empty() || (first >= 0x80 && first < 0xc2) || first > 0xf4)
        return 0;
    if (first < 0x80)
        return 1;
    if (first < 0xe0)
        return follows(1) ? 2 : 0;
    const unsigned second = at(1);
    const bool in_range = !(first == 0xe0 && second < 0xa0) && !(first == 0xed && second > 0x9f) &&
                          !(first == 0xf0 && second < 0x90) && !(first == 0xf4 && second > 0x8f);
    if (!in_range || !follows(1) || !follows(2))
        return 0;
    if (first < 0xf0)
        return 3;
    return follows(3) ? 4 : 0;
}

bool is_utf8(std::string_view text) noexcept
{
    while (!text.empty()) {
        const std::size_t size = utf8_character(text);
        if (size == 0)
            return false;
        text.remove_prefix(size);
    }
    return true;
}

std::string printable(std::string_view name)
{
    std::string out;
    while (!name.empty()) {
        const std::size_t size = utf8_character(name);
        if (name.front() == '\\')
            out += "\\\\";
        else
            append(out, name.substr(0, size == 0 ? 1 : size));
        name.remove_prefix(size == 0 ? 1 : size);
    }
    return out;
}

std::string printable_lines(std::string_view text)
{
    std::string out;
    for (;;) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        while (!line.empty()) {
            const std::size_t size = utf8_character(line);
            append(out, line.substr(0, size == 0 ? 1 : size));
            line.remove_prefix(size == 0 ? 1 : size);
        }
        if (end == std::string_view::npos)
            return out;
        out += '\n';
        text.remove_prefix(end + 1);
    }
}

} // namespace verbena
