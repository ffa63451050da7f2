// SPDX-License-Identifier: Apache-2.0
// ACLs as functions of themselves: what they allow, how they go with a mode, what is inherited, and POSIX ACLs by them and the other way.
#include "../../../plugins/posixfs/acl_mapping.hpp"
#include "../acl_text.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/protocols/storage/acl_rules.hpp>
#include <verbena/protocols/storage/permissions.hpp>

#include <algorithm>
#include <cerrno>
#include <random>

BOOST_AUTO_TEST_SUITE(acls_test)

using namespace verbena;
using namespace verbena::storage;
using posixfs::posix_acl;
using posixfs::posix_acls;
using posixfs::posix_tag;
using posixfs::to_nfs4;
using test::acl;
using test::text_of;

namespace {

constexpr std::uint32_t owner_uid = 10, owner_gid = 20;

attributes file_of(file_type type = file_type::regular)
{
    attributes a;
    a.type = type;
    a.uid = owner_uid;
    a.gid = owner_gid;
    return a;
}

credential who(std::uint32_t uid, std::uint32_t gid, std::vector<std::uint32_t> groups = {})
{
    credential c(uid, gid);
    c.set_groups(groups);
    return c;
}

std::string letters(std::uint32_t rights)
{
    std::string out;
    for (const auto& [letter, bit] : test::acl_rights)
        out += (rights & bit) != 0 ? std::string(1, letter) : "";
    return out;
}

std::uint32_t rights(std::string_view letters)
{
    return letters.empty() ? 0 : acl("A::OWNER@:" + std::string(letters))[0].mask;
}

// "u:7 1000:5 g:5 g20:4 m:7 o:0"
posix_acl posix(std::string_view text)
{
    posix_acl out;
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) {
        const auto colon = word.find(':');
        const std::string name = word.substr(0, colon);
        posixfs::posix_entry entry;
        entry.rights = static_cast<std::uint16_t>(word[colon + 1] - '0');
        if (name == "u") {
            entry.tag = posix_tag::owner;
        } else if (name == "g") {
            entry.tag = posix_tag::group;
        } else if (name == "m") {
            entry.tag = posix_tag::mask;
        } else if (name == "o") {
            entry.tag = posix_tag::others;
        } else {
            entry.tag = name[0] == 'g' ? posix_tag::named_group : posix_tag::named_user;
            entry.id = static_cast<std::uint32_t>(std::stoul(name[0] == 'g' ? name.substr(1) : name));
        }
        out.push_back(entry);
    }
    return out;
}

std::string text_of(const posix_acl& list)
{
    std::string out;
    for (const auto& entry : list) {
        out += out.empty() ? "" : " ";
        switch (entry.tag) {
        case posix_tag::owner: out += "u"; break;
        case posix_tag::named_user: out += std::to_string(entry.id); break;
        case posix_tag::group: out += "g"; break;
        case posix_tag::named_group: out += "g" + std::to_string(entry.id); break;
        case posix_tag::mask: out += "m"; break;
        case posix_tag::others: out += "o"; break;
        }
        out += ":" + std::to_string(entry.rights);
    }
    return out;
}

// What the kernel's posix_acl_permission() answers for one right.
bool posix_allows(const posix_acl& list, const credential& c, unsigned bit)
{
    unsigned mask = 7;
    for (const auto& entry : list)
        mask = entry.tag == posix_tag::mask ? entry.rights : mask;
    bool in_a_group = false;
    for (const auto& entry : list) {
        switch (entry.tag) {
        case posix_tag::owner:
            if (c.uid == owner_uid)
                return (entry.rights & bit) != 0;
            break;
        case posix_tag::named_user:
            if (c.uid == entry.id)
                return (entry.rights & mask & bit) != 0;
            break;
        case posix_tag::group:
        case posix_tag::named_group:
            if (in_group(c, entry.tag == posix_tag::group ? owner_gid : entry.id)) {
                in_a_group = true;
                if ((entry.rights & mask & bit) != 0)
                    return true;
            }
            break;
        case posix_tag::mask: break;
        case posix_tag::others: return !in_a_group && (entry.rights & bit) != 0;
        }
    }
    return false;
}

// The same rights, with the mask counted in.
posix_acl without_mask(posix_acl list)
{
    std::uint16_t mask = 7;
    std::erase_if(list, [&mask](const auto& entry) {
        mask = entry.tag == posix_tag::mask ? entry.rights : mask;
        return entry.tag == posix_tag::mask;
    });
    for (auto& entry : list)
        entry.rights &= entry.tag == posix_tag::owner || entry.tag == posix_tag::others ? 7 : mask;
    return list;
}

constexpr std::uint32_t right_of(unsigned bit, bool directory)
{
    using namespace ace_right;
    return bit == 4   ? read_data
           : bit == 1 ? execute
                      : write_data | append_data | (directory ? delete_child : 0);
}

const std::vector<credential> callers = {
    who(10, 20), who(10, 99),           who(11, 20), who(12, 99),       who(11, 99),
    who(99, 21), who(99, 99, {20, 21}), who(99, 99), who(12, 99, {21}), who(99, 99, {21, 22})};

} // namespace

// 8881 6.2.1: in order, the first that says something of a right decides it.
BOOST_AUTO_TEST_CASE(the_first_entry_that_says_something_decides)
{
    struct {
        const char* list;
        credential caller;
        const char *allowed, *denied;
    } const table[] = {
        {"D::11:w A::11:rw", who(11, 99), "r", "w"},
        {"A::11:rw D::11:w", who(11, 99), "rw", ""},
        {"A::11:rw", who(12, 99), "", ""},
        {"A::OWNER@:r A::EVERYONE@:x", who(10, 99), "rx", ""},
        {"A::OWNER@:r A::EVERYONE@:x", who(11, 20), "x", ""},
        {"D::GROUP@:r A::EVERYONE@:rx", who(11, 20), "x", "r"},
        {"D::GROUP@:r A::EVERYONE@:rx", who(11, 99, {20}), "x", "r"},
        {"D::GROUP@:r A::EVERYONE@:rx", who(11, 99), "rx", ""},
        {"A:g:21:w A::EVERYONE@:r", who(11, 21), "rw", ""},
        {"A:g:21:w A::EVERYONE@:r", who(21, 99), "r", ""},
        {"A::21:w A::EVERYONE@:r", who(99, 21), "r", ""},
        {"A:fdi:EVERYONE@:rwx A::EVERYONE@:r", who(11, 99), "r", ""},
        {"A:fd:EVERYONE@:rwx", who(11, 99), "rwx", ""},
        {"", who(10, 20), "", ""},
    };
    for (const auto& row : table) {
        const verdict v = judge(acl(row.list), file_of(), row.caller, rights("rwx"));
        BOOST_TEST(letters(v.allowed) == row.allowed, row.list);
        BOOST_TEST(letters(v.denied) == row.denied, row.list);
    }
    // The owner can't lock himself out, and root is refused only to execute what nobody may.
    const auto nothing = acl("D::EVERYONE@:rwaxtTcCod");
    BOOST_TEST(letters(rights_by(nothing, file_of(), who(10, 20), ~0u & ace_right::all)) == "tTcC");
    BOOST_TEST(rights_by(nothing, file_of(), who(11, 20), ace_right::all) == 0u);
    BOOST_TEST(rights_by(nothing, file_of(), who(0, 0), ace_right::all) ==
               (ace_right::all & ~ace_right::execute));
    BOOST_TEST(rights_by(nothing, file_of(file_type::directory), who(0, 0), ace_right::all) ==
               ace_right::all);
    BOOST_TEST(rights_by(acl("A::11:x"), file_of(), who(0, 0), ace_right::all) == ace_right::all);
}

BOOST_AUTO_TEST_CASE(a_mode_is_what_the_three_may)
{
    struct {
        const char* list;
        std::uint32_t mode;
    } const table[] = {
        {"", 0},
        {"A::OWNER@:rwax A::GROUP@:rx A::EVERYONE@:r", 0754},
        {"A::OWNER@:rw A::GROUP@:a", 0400}, // to write takes both bits
        {"A::EVERYONE@:rwa", 0666},
        {"D::GROUP@:r A::EVERYONE@:r", 0404},
        {"A::EVERYONE@:r D::GROUP@:r", 0444},
        {"D::OWNER@:wa A::OWNER@:rwa A::EVERYONE@:wa", 0422},
        {"A::11:rwax D::EVERYONE@:r A::OWNER@:rx", 0100},
        {"A:fdi:OWNER@:rwax", 0},
    };
    for (const auto& row : table)
        BOOST_TEST(mode_of(acl(row.list)) == row.mode, row.list);
}

// 8881 6.4.1.1.
BOOST_AUTO_TEST_CASE(a_mode_that_is_set_rewrites_the_list)
{
    struct {
        const char* before;
        std::uint32_t mode;
        const char* after;
    } const table[] = {
        {"", 0754, "A::OWNER@:rwaxtTcCy A::GROUP@:rxtcy D::GROUP@: A::EVERYONE@:rtcy"},
        {"", 0604, "A::OWNER@:rwatTcCy A::GROUP@:tcy D::GROUP@:r A::EVERYONE@:rtcy"},
        {"", 0077, "D::OWNER@:rwax A::OWNER@:tTcCy A::GROUP@:rwaxtcy A::EVERYONE@:rwaxtcy"},
        // Who is named keeps no more than the group's bits; what is denied stays denied.
        {"A::11:rwax D::12:r A:g:21:rx", 0640,
         "A::OWNER@:rwatTcCy A::11:r D::12:r A:g:21:r A::GROUP@:rtcy A::EVERYONE@:tcy"},
        // Nor do they get by EVERYONE@ what the group has not.
        {"A:g:21:rwx A::11:r D::12:x A::11:x", 0605,
         "D::OWNER@:x A::OWNER@:rwatTcCy D::12:x D::11:rx D::12:rx D:g:21:rx A::GROUP@:tcy D::GROUP@:rx "
         "A::EVERYONE@:rxtcy"},
        {"A::11:rwaxD", 0770, "A::OWNER@:rwaxtTcCy A::11:rwaxD A::GROUP@:rwaxtcy A::EVERYONE@:tcy"},
        {"A::11:rwaD", 0740, "A::OWNER@:rwaxtTcCy A::11:r A::GROUP@:rtcy A::EVERYONE@:tcy"},
        // Of the three only what a mode doesn't say stays.
        {"D::EVERYONE@:dr A::OWNER@:rwaxo A::GROUP@:rwx", 0600,
         "A::OWNER@:rwatTcCy D::EVERYONE@:d A::OWNER@:o A::GROUP@:tcy A::EVERYONE@:tcy"},
        // What is handed on is left alone.
        {"A:fdi:11:rwax A:fd:OWNER@:rwax A:d:12:rw", 0500,
         "A::OWNER@:rxtTcCy A:fdi:11:rwax A:fdi:OWNER@:rwax A:di:12:rw A::GROUP@:tcy A::EVERYONE@:tcy"},
    };
    for (const auto& row : table) {
        std::string wanted = row.after;
        if (const auto none = wanted.find("D::GROUP@: "); none != wanted.npos)
            wanted.erase(none, 11);
        const access_list after = with_mode(acl(row.before), row.mode);
        BOOST_TEST(text_of(after) == wanted);
        BOOST_TEST(mode_of(after) == row.mode);
    }
    // Whatever was there: the mode is what was set, nobody who is named has more than the group, and a second time changes nothing.
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
        access_list before(random() % 8);
        for (ace& entry : before)
            entry = {ace_type(random() % 2), ace_who(random() % 5), std::uint8_t(random() % 16),
                     std::uint32_t(random()) & ace_right::all, 10 + std::uint32_t(random() % 12)};
        const std::uint32_t mode = random() & 0777;
        const access_list after = with_mode(before, mode);
        if (mode_of(after) != mode)
            BOOST_FAIL(text_of(before) << " with " << mode);
        if (with_mode(after, mode) != after)
            BOOST_FAIL(text_of(before) << " with " << mode << " twice");
        const std::uint32_t has = judge(after, file_of(), who(11, 99, {21}), rights("rwax")).allowed;
        const bool named = std::ranges::any_of(before, [](const ace& entry) {
            return (entry.flags & ace_flag::inherit_only) == 0 &&
                   ((entry.who == ace_who::named_user && entry.id == 11) ||
                    (entry.who == ace_who::named_group && entry.id == 21));
        });
        const std::uint32_t bits = named ? mode >> 3 : mode | mode >> 3;
        const std::uint32_t may =
            (bits & 4 ? rights("r") : 0) | (bits & 2 ? rights("wa") : 0) | (bits & 1 ? rights("x") : 0);
        if ((has & ~may) != 0)
            BOOST_FAIL(text_of(before) << " with " << mode << " gives " << letters(has));
    }
}

// What the mode before denied to those who are named goes with it; what a client denied stays.
BOOST_AUTO_TEST_CASE(a_mode_takes_back_what_the_one_before_denied)
{
    access_list list = acl("A::11:r D::12:r");
    for (int i = 0; i < 3; ++i) {
        list = with_mode(list, 0604);
        BOOST_TEST(judge(list, file_of(), who(11, 99), rights("r")).denied == rights("r"));
        BOOST_TEST(judge(list, file_of(), who(13, 99), rights("r")).allowed == rights("r"));
    }
    list = with_mode(list, 0644);
    BOOST_TEST(judge(list, file_of(), who(11, 99), rights("r")).allowed == rights("r"));
    BOOST_TEST(judge(list, file_of(), who(12, 99), rights("r")).denied == rights("r"));
    BOOST_TEST(list.size() == 4u);
}

// 8881 6.4.3, 6.2.1.4.1.
BOOST_AUTO_TEST_CASE(what_is_inherited)
{
    struct {
        const char *directory, *file, *subdirectory;
    } const table[] = {
        {"A::11:rwx", "", ""},
        {"A:f:11:r", "A::11:r", "A:fi:11:r"},
        {"A:d:11:r", "", "A:d:11:r"},
        {"A:fd:11:r", "A::11:r", "A:fd:11:r"},
        {"A:fdi:11:r", "A::11:r", "A:fd:11:r"},
        {"A:fi:11:r", "A::11:r", "A:fi:11:r"},
        {"A:fn:11:r", "A::11:r", ""},
        {"A:dni:11:r", "", "A::11:r"},
        {"D:fd:GROUP@:w A:fdg:21:rw", "D::GROUP@:w A:g:21:rw", "D:fd:GROUP@:w A:fdg:21:rw"},
    };
    for (const auto& row : table) {
        BOOST_TEST(text_of(inherited(acl(row.directory), false)) == row.file, row.directory);
        BOOST_TEST(text_of(inherited(acl(row.directory), true)) == row.subdirectory, row.directory);
    }
}

BOOST_AUTO_TEST_CASE(posix_acls_as_extended_attributes)
{
    const std::uint8_t bytes[] = {2,    0,    0,    0,    1,    0,    7,    0,    0xff, 0xff, 0xff,
                                  0xff, 2,    0,    6,    0,    1,    2,    3,    4,    4,    0,
                                  5,    0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,    7,    0,    0xff,
                                  0xff, 0xff, 0xff, 0x20, 0,    4,    0,    0xff, 0xff, 0xff, 0xff};
    const auto value = std::as_bytes(std::span(bytes));
    const auto parsed = posixfs::parse_posix_acl(value);
    BOOST_REQUIRE(parsed);
    BOOST_TEST(text_of(*parsed) == "u:7 67305985:6 g:5 m:7 o:4");
    BOOST_CHECK(std::ranges::equal(posixfs::encode_posix_acl(*parsed), value));
    BOOST_TEST(posixfs::parse_posix_acl({})->empty());
    for (std::size_t size = 1; size < value.size(); ++size)
        BOOST_TEST(bool(posixfs::parse_posix_acl(value.first(size))) == (size == 4), size);
    // Another version, an unknown tag, a fourth bit, and lists that no kernel takes.
    for (const auto& [at, octet] : {std::pair(0, 3), std::pair(4, 3), std::pair(6, 8), std::pair(5, 1)}) {
        std::vector<std::byte> other(value.begin(), value.end());
        other[std::size_t(at)] = std::byte(octet);
        BOOST_TEST(!posixfs::parse_posix_acl(other), at);
    }
    for (const char* text : {"u:7 g:5", "u:7 g:5 o:5 o:5", "u:7 11:5 g:5 o:5", "g:5 u:7 o:5",
                             "u:7 u:7 g:5 o:5", "u:7 g:5 m:7 m:7 o:5"})
        BOOST_TEST(!posixfs::parse_posix_acl(posixfs::encode_posix_acl(posix(text))), text);
}

BOOST_AUTO_TEST_CASE(posix_acls_are_told_and_come_back)
{
    struct {
        const char *access, *inherited;
        bool directory;
        const char* told;
    } const table[] = {
        {"u:6 g:4 o:4", "", false, "A::OWNER@:rwatTcCy A::GROUP@:rtcy A::EVERYONE@:rtcy"},
        {"u:6 g:0 o:4", "", false, "A::OWNER@:rwatTcCy A::GROUP@:tcy D::GROUP@:r A::EVERYONE@:rtcy"},
        {"u:4 g:6 o:0", "", false, "D::OWNER@:wa A::OWNER@:rtTcCy A::GROUP@:rwatcy A::EVERYONE@:tcy"},
        {"u:7 11:4 g:5 g21:6 m:7 o:1", "", false,
         "A::OWNER@:rwaxtTcCy D::11:wax A::11:rtcy A::GROUP@:rxtcy A:g:21:rwatcy D:g:21:x "
         "A::EVERYONE@:xtcy"},
        // The mask takes what it takes.
        {"u:7 11:6 g:4 m:4 o:0", "", false, "A::OWNER@:rwaxtTcCy A::11:rtcy A::GROUP@:rtcy A::EVERYONE@:tcy"},
        {"u:7 g:5 o:5", "u:7 11:5 g:5 m:5 o:0", true,
         "A::OWNER@:rwaxDtTcCy A::GROUP@:rxtcy A::EVERYONE@:rxtcy A:fdi:OWNER@:rwaxDtTcCy A:fdi:11:rxtcy "
         "A:fdi:GROUP@:rxtcy A:fdi:EVERYONE@:tcy"},
    };
    for (const auto& row : table) {
        const posix_acls from{posix(row.access), posix(row.inherited)};
        const access_list told = to_nfs4(from, row.directory);
        BOOST_TEST(text_of(told) == text_of(acl(row.told)));
        const auto back = posixfs::to_posix(told, row.directory);
        BOOST_REQUIRE(back);
        // But for the mask, which was counted in.
        const std::string masked =
            row.access == std::string_view("u:7 11:6 g:4 m:4 o:0") ? "u:7 11:4 g:4 m:4 o:0" : row.access;
        BOOST_TEST(text_of(back->access) == masked);
        BOOST_TEST(text_of(back->inherited) == row.inherited);
    }
    BOOST_TEST(text_of(to_nfs4({posixfs::posix_acl_of(0604), {}}, false)) == text_of(with_mode({}, 0604)));
}

BOOST_AUTO_TEST_CASE(lists_are_told_to_posix)
{
    struct {
        const char* list;
        bool directory;
        const char *access, *inherited; // nullptr: refused
    } const table[] = {
        {"", false, "u:0 g:0 o:0", ""},
        {"A::OWNER@:rwa A::EVERYONE@:r", false, "u:6 g:4 o:4", ""},
        {"A::OWNER@:rw", false, "u:4 g:0 o:0", ""}, // half of writing is none
        {"A::OWNER@:rwa", true, "u:4 g:0 o:0", ""}, // of a directory with to remove
        {"A::OWNER@:rwaD", true, "u:6 g:0 o:0", ""},
        {"A::12:r A::11:rx A:g:22:x A:g:21:r", false, "u:0 11:5 12:4 g:0 g21:4 g22:1 m:5 o:0", ""},
        // Who is named later has what everybody had by then.
        {"A::EVERYONE@:r A::11:x", false, "u:4 11:5 g:4 m:5 o:4", ""},
        {"A::11:x A::EVERYONE@:r", false, "u:4 11:5 g:4 m:5 o:4", ""},
        {"D::EVERYONE@:x A::11:rx", false, "u:0 11:4 g:0 m:4 o:0", ""},
        {"D::11:r A::11:r A::EVERYONE@:r", false, "u:0 11:0 g:4 m:4 o:4", ""}, // the owner may be 11
        {"A::EVERYONE@:r D::11:r", false, "u:4 11:4 g:4 m:4 o:4", ""},
        // Anybody may be in a group that is denied.
        {"D::GROUP@:r A::11:r A::OWNER@:r A::EVERYONE@:r", false, "u:0 11:0 g:0 m:0 o:4", ""},
        {"D:g:21:r A::11:r A::EVERYONE@:rx", false, "u:1 11:1 g:1 g21:1 m:1 o:5", ""},
        {"A::11:r D:g:21:r", false, "u:0 11:4 g:0 g21:0 m:4 o:0", ""},
        // Rights that POSIX doesn't have may be given or not, but not denied where they are always there.
        {"A::EVERYONE@:rdoNncty D::EVERYONE@:do", false, "u:4 g:4 o:4", ""},
        {"D::EVERYONE@:t", false, nullptr, nullptr},
        {"D::11:c", false, nullptr, nullptr},
        {"D:g:21:c", false, nullptr, nullptr},
        {"A::OWNER@:c D::11:c", false, nullptr, nullptr}, // also where the owner is not meant
        {"A::OWNER@:c A::GROUP@:c D:g:21:c", false, nullptr, nullptr},
        {"D::GROUP@:t", false, nullptr, nullptr},
        {"D::OWNER@:C", false, nullptr, nullptr},
        {"D::OWNER@:T", false, nullptr, nullptr},
        {"D::GROUP@:CT", false, nullptr, nullptr}, // the owner may be in it
        {"A::OWNER@:CT D::GROUP@:CT", false, "u:0 g:0 o:0", ""},
        // What is inherited.
        {"A:fd:OWNER@:rx", true, "u:5 g:0 o:0", "u:5 g:0 o:0"},
        {"A:fdi:11:rx A::OWNER@:r", true, "u:4 g:0 o:0", "u:0 11:5 g:0 m:5 o:0"},
        // What is for files alone would be for directories, too; a DENY may be.
        {"A:f:OWNER@:rx", true, nullptr, nullptr},
        {"A:di:11:rx A::OWNER@:r", true, nullptr, nullptr},
        {"D:fi:11:r A:fdi:11:rx", true, "u:0 g:0 o:0", "u:0 11:1 g:0 m:1 o:0"},
        {"D::EVERYONE@:dnN A::11:rwa", false, "u:0 11:6 g:0 m:6 o:0", ""}, // go by other rights here
        // The mask shows no right that nobody has.
        {"A::11:w A::GROUP@:a", false, "u:0 11:0 g:0 m:0 o:0", ""},
        {"A:fd:OWNER@:rx", false, nullptr, nullptr},
        {"A:fdn:OWNER@:rx", true, nullptr, nullptr},
        {"D:fdi:EVERYONE@:t", true, nullptr, nullptr},
    };
    for (const auto& row : table) {
        const auto told = posixfs::to_posix(acl(row.list), row.directory);
        BOOST_TEST_CONTEXT(row.list)
        {
            if (row.access == nullptr) {
                BOOST_REQUIRE(!told);
                BOOST_TEST(told.error().errno_value() == EOPNOTSUPP);
            } else {
                BOOST_REQUIRE(told);
                BOOST_TEST(text_of(told->access) == row.access);
                BOOST_TEST(text_of(told->inherited) == row.inherited);
            }
        }
    }
}

// Of what somebody may do nothing is lost on the way to NFS, and nothing won on the way to POSIX.
BOOST_AUTO_TEST_CASE(no_way_gives_anybody_more)
{
    std::mt19937 random(2);
    const auto draw = [&random](std::uint32_t below) { return std::uint32_t(random() % below); };
    int told_to_posix = 0, refused = 0, granted = 0, handed_on = 0;
    for (int i = 0; i < 2000; ++i) {
        const bool directory = draw(2) == 1;
        const attributes file = file_of(directory ? file_type::directory : file_type::regular);
        const auto allows = [&](const access_list& list, const credential& c, unsigned bit) {
            const std::uint32_t all = right_of(bit, directory);
            return judge(list, file, c, all).allowed == all;
        };
        posix_acl from = posixfs::posix_acl_of(draw(01000));
        if (draw(2) == 1) {
            posix_acl more;
            for (const std::uint32_t id : {10U, 11U, 12U})
                if (draw(2) == 1)
                    more.push_back({posix_tag::named_user, std::uint16_t(draw(8)), id});
            more.push_back(from[1]);
            for (const std::uint32_t id : {21U, 22U})
                if (draw(2) == 1)
                    more.push_back({posix_tag::named_group, std::uint16_t(draw(8)), id});
            more.push_back({posix_tag::mask, std::uint16_t(draw(8)), 0});
            from = {from[0], from[2]};
            from.insert(from.begin() + 1, more.begin(), more.end());
        }
        const access_list told = to_nfs4({from, {}}, directory);
        const auto back = posixfs::to_posix(told, directory);
        BOOST_REQUIRE(back);
        if (without_mask(back->access) != without_mask(from))
            BOOST_FAIL(text_of(from) << " as " << text_of(told) << " and back as " << text_of(back->access));
        for (const credential& c : callers) {
            for (const unsigned bit : {4U, 2U, 1U}) {
                if (allows(told, c, bit) != posix_allows(from, c, bit))
                    BOOST_FAIL(text_of(from) << " as " << text_of(told) << ", " << c.uid << " " << bit);
            }
        }
        access_list list(draw(7));
        for (ace& entry : list) {
            using namespace ace_flag;
            constexpr std::uint8_t both = file_inherit | directory_inherit;
            constexpr std::uint8_t flags[] = {0, 0, 0, both, both, both | inherit_only};
            entry = {ace_type(draw(2)), ace_who(draw(5)), 0, std::uint32_t(random()) & rights("rwaxD"), 0};
            if (directory) {
                entry.flags = flags[draw(std::size(flags))];
                if (entry.type == ace_type::deny ? draw(4) == 0 : draw(50) == 0)
                    entry.flags = draw(2) == 1 ? file_inherit : directory_inherit | inherit_only;
            }
            entry.id = entry.who == ace_who::named_user    ? 10 + draw(3)
                       : entry.who == ace_who::named_group ? 20 + draw(3)
                                                           : 0;
        }
        const auto mapped = posixfs::to_posix(list, directory);
        const bool one_sided = std::ranges::any_of(list, [](const ace& entry) {
            const auto flags = entry.flags & ace_flag::inherits;
            return entry.type == ace_type::allow && flags != 0 && flags != ace_flag::inherits;
        });
        BOOST_REQUIRE(bool(mapped) == !one_sided);
        if (!mapped) {
            ++refused;
            continue;
        }
        told_to_posix += list.size() > 3 ? 1 : 0;
        for (const credential& c : callers) {
            for (const unsigned bit : {4U, 2U, 1U}) {
                const bool has = posix_allows(mapped->access, c, bit);
                granted += has ? 1 : 0;
                if (has && !allows(list, c, bit))
                    BOOST_FAIL(text_of(list)
                               << " as " << text_of(mapped->access) << ", " << c.uid << " " << bit);
                // What is made in it has the default ACL, whatever it is.
                if (mapped->inherited.empty() || !posix_allows(mapped->inherited, c, bit))
                    continue;
                ++handed_on;
                for (const bool makes_directory : {false, true}) {
                    const std::uint32_t all = right_of(bit, makes_directory);
                    if (judge(inherited(list, makes_directory), file, c, all).allowed != all)
                        BOOST_FAIL(text_of(list) << " hands on " << text_of(mapped->inherited) << ", "
                                                 << c.uid << " " << bit);
                }
            }
        }
    }
    BOOST_TEST(told_to_posix > 500);
    BOOST_TEST(refused > 20);
    BOOST_TEST(granted > 5000);
    BOOST_TEST(handed_on > 1000);
}

BOOST_AUTO_TEST_SUITE_END()
