// SPDX-License-Identifier: Apache-2.0
// ACLs as nfs4_getfacl shows them, "A:fd:OWNER@:rwx D::1000:w", for tables of tests.
#pragma once

#include <verbena/protocols/storage/acl.hpp>

#include <array>
#include <charconv>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace verbena::test {

inline constexpr std::array<std::pair<char, std::uint32_t>, 14> acl_rights = {{
    {'r', 0x1},
    {'w', 0x2},
    {'a', 0x4},
    {'n', 0x8},
    {'N', 0x10},
    {'x', 0x20},
    {'D', 0x40},
    {'t', 0x80},
    {'T', 0x100},
    {'d', 0x10000},
    {'c', 0x20000},
    {'C', 0x40000},
    {'o', 0x80000},
    {'y', 0x100000},
}};
inline constexpr std::array<std::pair<char, std::uint8_t>, 4> acl_flags = {
    {{'f', 1}, {'d', 2}, {'n', 4}, {'i', 8}}};

inline std::string text_of(const storage::ace& entry)
{
    std::string out = entry.type == storage::ace_type::allow ? "A:" : "D:";
    for (const auto& [letter, bit] : acl_flags)
        out += (entry.flags & bit) != 0 ? std::string(1, letter) : "";
    switch (entry.who) {
    case storage::ace_who::owner: out += ":OWNER@:"; break;
    case storage::ace_who::group: out += ":GROUP@:"; break;
    case storage::ace_who::everyone: out += ":EVERYONE@:"; break;
    case storage::ace_who::named_user: out += ":" + std::to_string(entry.id) + ":"; break;
    case storage::ace_who::named_group: out += "g:" + std::to_string(entry.id) + ":"; break;
    }
    for (const auto& [letter, bit] : acl_rights)
        out += (entry.mask & bit) != 0 ? std::string(1, letter) : "";
    return out;
}

inline std::string text_of(const storage::access_list& list)
{
    std::string out;
    for (const storage::ace& entry : list)
        out += (out.empty() ? "" : " ") + text_of(entry);
    return out;
}

inline storage::access_list acl(std::string_view text)
{
    storage::access_list out;
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) {
        std::istringstream fields(word);
        std::string type, flags, who, rights;
        std::getline(fields, type, ':');
        std::getline(fields, flags, ':');
        std::getline(fields, who, ':');
        std::getline(fields, rights);
        storage::ace entry;
        entry.type = type == "A" ? storage::ace_type::allow : storage::ace_type::deny;
        for (const auto& [letter, bit] : acl_flags)
            entry.flags |= flags.find(letter) != flags.npos ? bit : 0;
        for (const auto& [letter, bit] : acl_rights)
            entry.mask |= rights.find(letter) != rights.npos ? bit : 0;
        if (who == "OWNER@")
            entry.who = storage::ace_who::owner;
        else if (who == "GROUP@")
            entry.who = storage::ace_who::group;
        else if (who != "EVERYONE@") {
            entry.who =
                flags.find('g') != flags.npos ? storage::ace_who::named_group : storage::ace_who::named_user;
            if (std::from_chars(who.data(), who.data() + who.size(), entry.id).ec != std::errc())
                throw std::invalid_argument(word);
        }
        out.push_back(entry);
    }
    return out;
}

} // namespace verbena::test
