// SPDX-License-Identifier: Apache-2.0
// What every back end with numbers of states must do with them: each change has a larger one, however soon it follows, and all calls tell the same.
#pragma once

#include "backend_fixture.hpp"

namespace suite {

/// The states of one file, as they follow each other.
struct numbered_states : fixture {
    void begin(const handle& file)
    {
        of = file;
        BOOST_TEST_REQUIRE(stat(of).change.has_value());
        last = *stat(of).change;
        BOOST_TEST(*stat(of).change == last);
    }
    /// The file has changed.
    void changed()
    {
        const attributes now = stat(of);
        BOOST_TEST_REQUIRE(now.change.has_value());
        BOOST_TEST(*now.change > last);
        last = *now.change;
    }
    /// The same, and the change says what the file is now.
    void changed(const std::optional<attributes>& after)
    {
        changed();
        BOOST_TEST_REQUIRE(after.has_value());
        tells(*after);
    }
    void changed(const change& c)
    {
        if (c.before)
            BOOST_TEST((c.before->change == std::optional(last)));
        changed(c.after);
    }
    void tells(const attributes& a)
    {
        BOOST_TEST_REQUIRE(a.change.has_value());
        BOOST_TEST(*a.change == last);
    }

    void change_a_file();
    void change_a_directory();
    void ask_by_all_calls();

    handle of;
    std::uint64_t last = 0;
};

inline void numbered_states::change_a_file()
{
    const handle f = make_file("f", "x");
    const handle g = make_file("g", std::string(8192, 'g'));
    begin(f);
    // They take a tick of the kernel's clock together, or a few.
    for (int i = 0; i < 100; ++i)
        changed(must(write(me, f, 0, "data")).file);
    changed(must(write(me, f, 0, "stable", stability::file_sync)).file);
    set_attributes mode;
    for (std::uint32_t m = 0600; m < 0610; ++m) {
        mode.mode = m;
        changed(must(fs->setattr(me, f, mode, std::nullopt)).after);
    }
    // A change that fails half way is one.
    set_attributes bad;
    for (std::uint32_t m = 0620; m < 0630; ++m) {
        bad.mode = m;
        bad.mtime = {set_time::kind::value, {1, 4'000'000'000}};
        if (fails(fs->setattr(me, f, bad, std::nullopt)) != 0)
            changed();
    }
    set_attributes size;
    size.size = 3;
    changed(must(fs->setattr(me, f, size, std::nullopt)).after);
    // Often enough that some of each follow another change within the tick.
    for (int i = 0; i < 20; ++i) {
        changed(must(fs->link(me, f, fs->root(), "second")).file);
        must(fs->rename(me, fs->root(), "second", fs->root(), "third"));
        changed();
        must(fs->remove(me, fs->root(), "third"));
        changed();
    }
    if (fs->info().xattrs) {
        changed(must(fs->setxattr(me, f, "a", bytes("1"), xattr_mode::either)).after);
        changed(must(fs->removexattr(me, f, "a")).after);
    }
    for (int i = 0; i < 20; ++i) {
        changed(must(fs->copy(me, g, 0, f, 0, 4096)).file);
        // File systems need not have these.
        if (const auto room = run(fs->allocate(me, f, 0, 16384)))
            changed(room->after);
        if (const auto hole = run(fs->deallocate(me, f, 0, 4096)))
            changed(hole->after);
    }
    // Of the one that is overwritten a name is left.
    for (int i = 0; i < 20; ++i) {
        must(fs->link(me, f, fs->root(), "fourth"));
        make_file("h");
        changed();
        must(fs->rename(me, fs->root(), "h", fs->root(), "fourth"));
        changed();
        must(fs->remove(me, fs->root(), "fourth"));
    }
    set_attributes none;
    none.size = 0;
    changed(must(fs->create(me, fs->root(), "f", create_mode::unchecked, none, 0)).made.attrs);
}

inline void numbered_states::change_a_directory()
{
    const handle d = make_directory(fs->root(), "d");
    const handle e = make_directory(fs->root(), "e");
    begin(d);
    for (int i = 0; i < 20; ++i) {
        const std::string n = std::to_string(i);
        changed(must(fs->create(me, d, n, create_mode::guarded, {}, 0)).directory);
    }
    changed(must(fs->create(me, d, "x", create_mode::exclusive, {}, 7)).directory);
    changed(must(fs->mkdir(me, d, "sub", {})).directory);
    changed(must(fs->symlink(me, d, "s", "target", {})).directory);
    changed(must(fs->mknod(me, d, "p", file_type::fifo, 0, 0, {})).directory);
    changed(must(fs->link(me, find(d, "1"), d, "one")).directory);
    const auto within = must(fs->rename(me, d, "one", d, "uno"));
    changed(within.from);
    tells(*within.to.after);
    changed(must(fs->rename(me, d, "uno", e, "uno")).from);
    changed(must(fs->rename(me, e, "uno", d, "uno")).to);
    // To its own name, and to another one of the same file.
    changed(must(fs->link(me, find(d, "uno"), d, "two")).directory);
    for (const char* to : {"uno", "two"}) {
        const auto nothing = must(fs->rename(me, d, "uno", d, to));
        tells(*nothing.from.after);
        tells(*nothing.to.after);
    }
    tells(stat(d));
    for (const char* kept : {"uno", "two"})
        BOOST_TEST(find(d, kept).bytes().size() != 0U);
    for (int i = 0; i < 20; ++i)
        changed(must(fs->remove(me, d, std::to_string(i))));
    changed(must(fs->rmdir(me, d, "sub")));
    set_attributes mode;
    mode.mode = 0700;
    changed(must(fs->setattr(me, d, mode, std::nullopt)));
    if (fs->info().xattrs)
        changed(must(fs->setxattr(me, d, "a", bytes("1"), xattr_mode::either)));
    // One that moves is told elsewhere what is above it.
    must(fs->rename(me, fs->root(), "d", e, "d"));
    changed();
    // Nothing is made, and nothing changes.
    tells(*must(fs->create(me, d, "x", create_mode::unchecked, {}, 0)).directory.after);
    BOOST_TEST(fails(fs->mkdir(me, d, "x", {})) == EEXIST);
    tells(stat(d));
}

inline void numbered_states::ask_by_all_calls()
{
    set_attributes mode;
    mode.mode = 0640;
    const auto made = must(fs->create(me, fs->root(), "f", create_mode::guarded, mode, 0));
    const handle f = made.made.handle;
    begin(f);
    tells(*made.made.attrs);
    changed(must(write(me, f, 0, "data")).file);
    tells(*must(fs->lookup(me, fs->root(), "f")).found.attrs);
    tells(*must(fs->commit(me, f, 0, 0)).after);
    std::array<std::byte, 4> out{};
    tells(*must(fs->read(me, f, 0, out)).attrs);
    listing all;
    must(fs->readdir(me, fs->root(), 0, 0, true, all));
    tells(all.attrs["f"]);
    const auto opened = must(fs->open(me, f, R_OK, open_right::asked));
    tells(opened.attrs);
    const auto located = must(fs->locate(me, f, 0, 4, storage::locatable::memory_or_file));
    if (located.here)
        tells(*located.read.attrs);
    begin(fs->root());
    tells(all.attrs["."]);
    tells(*must(fs->lookup(me, fs->root(), "f")).directory);
    tells(*must(fs->readdir(me, fs->root(), 0, 0, false, all)).directory);
    const auto directory = must(fs->mkdir(me, fs->root(), "d", mode));
    begin(directory.made.handle);
    tells(*directory.made.attrs);
    begin(must(fs->symlink(me, fs->root(), "s", "target", {})).made.handle);
    tells(*must(fs->lookup(me, fs->root(), "s")).found.attrs);
}

BOOST_FIXTURE_TEST_SUITE(every_numbering_backend, numbered_states)

BOOST_AUTO_TEST_CASE(each_change_of_a_file_has_a_larger_number) { change_a_file(); }
BOOST_AUTO_TEST_CASE(each_change_of_a_directory_has_a_larger_number) { change_a_directory(); }
BOOST_AUTO_TEST_CASE(all_calls_tell_one_number) { ask_by_all_calls(); }

BOOST_AUTO_TEST_SUITE_END()

} // namespace suite
