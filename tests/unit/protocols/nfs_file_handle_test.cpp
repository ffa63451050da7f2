// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/files/under_way.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>

#include "../lines_of_log.hpp"
#include "bytes.hpp"

#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs_file_handle_test)

using namespace verbena;
using namespace verbena::nfs;
using namespace verbena::test;

namespace {

handle_key key(unsigned first = 0)
{
    handle_key key;
    for (unsigned i = 0; i < key.size(); ++i)
        key[i] = std::byte(first + i);
    return key;
}

storage::handle inner(std::size_t size)
{
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = std::byte(0xa0 + i);
    return storage::handle(bytes);
}

class state_directory {
public:
    state_directory()
    {
        std::string name = "/tmp/verbena-handle-key-XXXXXX";
        BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~state_directory() { std::filesystem::remove_all(path_); }
    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path file() const { return path_ / "handle.key"; }
    void write(std::string_view content, mode_t mode) const
    {
        std::ofstream(file()) << content;
        BOOST_REQUIRE(::chmod(file().c_str(), mode) == 0);
    }
    std::string content() const
    {
        std::ifstream in(file());
        return {std::istreambuf_iterator<char>(in), {}};
    }

private:
    std::filesystem::path path_;
};

} // namespace

BOOST_AUTO_TEST_CASE(layout_on_the_wire)
{
    const auto handle = sign_handle(key(), 0x01020304, inner(12));
    BOOST_REQUIRE(handle);
    BOOST_TEST(to_hex(handle->bytes().first(17)) == to_hex("01 01020304 a0a1a2a3a4a5a6a7a8a9aaab"));
    BOOST_TEST(handle->bytes().size() == 25);
    BOOST_TEST(handle->bytes().size() <= 32); // what NFS version 2 can carry
}

BOOST_AUTO_TEST_CASE(opens_what_it_signed)
{
    for (const std::size_t size : {std::size_t(1), std::size_t(12), file_handle::max_inner}) {
        const auto handle = sign_handle(key(), 7, inner(size));
        BOOST_REQUIRE(handle);
        BOOST_TEST(handle->bytes().size() <= file_handle::max_size);
        const auto opened = open_handle(key(), handle->bytes());
        BOOST_REQUIRE(opened);
        BOOST_TEST(opened->export_id == 7u);
        BOOST_TEST((opened->inner == inner(size)));
    }
    BOOST_TEST(!sign_handle(key(), 7, inner(file_handle::max_inner + 1)).has_value());
    BOOST_TEST(!sign_handle(key(), 7, storage::handle()).has_value());
}

BOOST_AUTO_TEST_CASE(every_changed_bit_is_noticed)
{
    const auto handle = sign_handle(key(), 7, inner(12));
    BOOST_REQUIRE(handle);
    for (std::size_t bit = 0; bit < handle->bytes().size() * 8; ++bit) {
        std::vector<std::byte> forged(handle->bytes().begin(), handle->bytes().end());
        forged[bit / 8] ^= std::byte(1 << bit % 8);
        BOOST_TEST(!open_handle(key(), forged).has_value(), "bit " << bit);
    }
}

BOOST_AUTO_TEST_CASE(other_lengths_and_keys_are_noticed)
{
    const auto handle = sign_handle(key(), 7, inner(12));
    BOOST_REQUIRE(handle);
    for (std::size_t size = 0; size < handle->bytes().size(); ++size)
        BOOST_TEST(!open_handle(key(), handle->bytes().first(size)).has_value());
    std::vector<std::byte> longer(handle->bytes().begin(), handle->bytes().end());
    while (longer.size() < 80) {
        longer.push_back(std::byte(0));
        BOOST_TEST(!open_handle(key(), longer).has_value());
    }
    BOOST_TEST(!open_handle(key(1), handle->bytes()).has_value());
}

BOOST_AUTO_TEST_CASE(the_key_is_made_once_and_kept)
{
    const state_directory state;
    const auto made = load_or_create_key(state.path());
    BOOST_REQUIRE(made);
    struct stat status;
    BOOST_REQUIRE(::stat(state.file().c_str(), &status) == 0);
    BOOST_TEST((status.st_mode & 07777) == 0600u);
    BOOST_TEST(status.st_size == 16);
    const auto again = load_or_create_key(state.path());
    BOOST_REQUIRE(again);
    BOOST_TEST((*again == *made));
    // Nothing is left of how it was made.
    BOOST_TEST(std::distance(std::filesystem::directory_iterator(state.path()), {}) == 1);

    const state_directory other;
    const auto different = load_or_create_key(other.path() / "made" / "too");
    BOOST_REQUIRE(different);
    BOOST_TEST((*different != *made));
}

BOOST_AUTO_TEST_CASE(a_key_that_was_lost_is_told)
{
    const state_directory state;
    {
        const verbena::test::lines_of_log lines;
        BOOST_REQUIRE(load_or_create_key(state.path()));
        BOOST_TEST(lines.count({"info nfs: a new handle.key signs file handles; keep a copy"}) == 1u);
        BOOST_REQUIRE(load_or_create_key(state.path()));
        BOOST_TEST(lines.all.size() == 1u);
    }
    std::ofstream(state.path() / "nfs-recovery.sqlite") << "of an earlier start";
    std::filesystem::remove(state.file());
    const verbena::test::lines_of_log lines;
    BOOST_REQUIRE(load_or_create_key(state.path()));
    BOOST_TEST(lines.count({"warning nfs: a new handle.key was made where an earlier verbenad had one",
                            "put the copy of that key back", "have all clients mount again",
                            "state=" + state.path().native()}) == 1u);
    BOOST_TEST(lines.all.size() == 1u);
}

BOOST_AUTO_TEST_CASE(the_file_holds_the_key_itself)
{
    const state_directory state;
    state.write("0123456789abcdef", 0600);
    const auto loaded = load_or_create_key(state.path());
    BOOST_REQUIRE(loaded);
    BOOST_TEST(text_of(*loaded) == "0123456789abcdef");
}

BOOST_AUTO_TEST_CASE(a_bad_key_file_is_refused_and_left_alone)
{
    const state_directory state;
    for (const mode_t mode : {0640, 0604, 0620, 0601}) {
        state.write("0123456789abcdef", mode);
        const auto loaded = load_or_create_key(state.path());
        BOOST_REQUIRE(!loaded);
        // What keeps the clients' handles comes first.
        const std::string text = loaded.error().message();
        BOOST_TEST(text.find("others: chmod 600 handle.key; if somebody may have read it, remove it") !=
                       std::string::npos,
                   text);
    }
    for (const char* content : {"", "0123456789abcde", "0123456789abcdef0"}) {
        state.write(content, 0600);
        const auto loaded = load_or_create_key(state.path());
        BOOST_REQUIRE(!loaded);
        BOOST_TEST(loaded.error().message().find("not 16 bytes") != std::string::npos);
        BOOST_TEST(state.content() == content);
    }
    std::filesystem::remove(state.file());
    std::filesystem::create_symlink("/etc/passwd", state.file());
    BOOST_TEST(!load_or_create_key(state.path()).has_value());
}

// What the state of files calls a file becomes the handle that a client has of it.
BOOST_AUTO_TEST_CASE(a_state_key_names_its_handle_by_each_export)
{
    for (const std::size_t size : {std::size_t(1), file_handle::max_inner}) {
        const auto name = files::file_key(7, inner(size));
        BOOST_TEST((name != files::file_key(8, inner(size))));
        for (const std::uint32_t via : {7u, 9u}) {
            const auto handle = sign_state_file(key(), {name, via});
            BOOST_REQUIRE(handle);
            const auto opened = open_handle(key(), handle->bytes());
            BOOST_REQUIRE(opened);
            BOOST_TEST(opened->export_id == via);
            BOOST_TEST((opened->inner == inner(size)));
        }
    }
    // Of handles that no client can have, the key tells them apart and is no handle.
    const auto longest = inner(storage::handle::max_size);
    auto other = std::vector<std::byte>(longest.bytes().begin(), longest.bytes().end());
    other.back() = std::byte(0);
    BOOST_TEST((files::file_key(7, longest) != files::file_key(7, storage::handle(other))));
    BOOST_TEST(!sign_state_file(key(), {files::file_key(7, longest), 7}));
    BOOST_TEST(!sign_state_file(key(), {storage::handle(std::span(other).first(3)), 7}));
}

BOOST_AUTO_TEST_CASE(what_is_no_file_of_ones_own_is_no_key)
{
    const state_directory state;
    std::filesystem::create_directory(state.file());
    const auto folder = load_or_create_key(state.path());
    BOOST_REQUIRE(!folder);
    BOOST_TEST(folder.error().message().find("not a regular file") != std::string::npos);
    std::filesystem::remove(state.file());
    // Nothing can be created there.
    BOOST_TEST(!load_or_create_key("/proc/self").has_value());
}

BOOST_AUTO_TEST_CASE(a_state_directory_that_cannot_be)
{
    const auto loaded = load_or_create_key("/dev/null/state");
    BOOST_REQUIRE(!loaded);
    BOOST_TEST(loaded.error().message().find("--state") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
