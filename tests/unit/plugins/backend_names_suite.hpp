// SPDX-License-Identifier: Apache-2.0
// What every back end must do with names: lookup, removal, rename, links, listings; and what it refuses.
#pragma once

#include "backend_fixture.hpp"

namespace suite {

BOOST_FIXTURE_TEST_SUITE(every_backend, fixture)

BOOST_AUTO_TEST_CASE(names_are_checked_everywhere)
{
    const handle root = fs->root();
    const handle f = make_file("f");
    struct bad {
        std::string name;
        int error;
    };
    const std::vector<bad> names = {{"", EINVAL},
                                    {"a/b", EINVAL},
                                    {"/", EINVAL},
                                    {std::string("a\0b", 3), EINVAL},
                                    {std::string(256, 'n'), ENAMETOOLONG},
                                    {std::string(70'000, 'n'), ENAMETOOLONG}};
    for (const bad& b : names) {
        BOOST_TEST_CONTEXT("a name of " << b.name.size() << " bytes")
        {
            BOOST_TEST(fails(fs->lookup(me, root, b.name)) == b.error);
            BOOST_TEST(fails(fs->create(me, root, b.name, create_mode::unchecked, {}, 0)) == b.error);
            BOOST_TEST(fails(fs->mkdir(me, root, b.name, {})) == b.error);
            BOOST_TEST(fails(fs->symlink(me, root, b.name, "x", {})) == b.error);
            BOOST_TEST(fails(fs->mknod(me, root, b.name, file_type::fifo, 0, 0, {})) == b.error);
            BOOST_TEST(fails(fs->remove(me, root, b.name)) == b.error);
            BOOST_TEST(fails(fs->rmdir(me, root, b.name)) == b.error);
            BOOST_TEST(fails(fs->rename(me, root, b.name, root, "x")) == b.error);
            BOOST_TEST(fails(fs->rename(me, root, "f", root, b.name)) == b.error);
            BOOST_TEST(fails(fs->link(me, f, root, b.name)) == b.error);
        }
    }
    const std::string longest(255, 'n');
    const handle l = make_file(longest);
    BOOST_TEST((find(root, longest) == l));
}

BOOST_AUTO_TEST_CASE(whoever_knows_times_of_birth_tells_them_everywhere)
{
    const handle root = fs->root();
    const bool known = fs->info().birth_times;
    const auto made = must(fs->create(me, root, "f", create_mode::guarded, {}, 0));
    const handle d = make_directory(root, "d");
    const auto born = stat(made.made.handle).birth;
    BOOST_TEST(born.has_value() == known);
    BOOST_TEST(stat(d).birth.has_value() == known);
    BOOST_TEST(stat(root).birth.has_value() == known);
    put(me, made.made.handle, 0, "text");
    set_attributes set;
    set.mtime = {set_time::kind::value, {5, 0}};
    must(fs->setattr(me, made.made.handle, set, std::nullopt));
    BOOST_TEST((stat(made.made.handle).birth == born));
    const auto found = must(fs->lookup(me, root, "f"));
    BOOST_TEST((found.found.attrs && found.found.attrs->birth == born));
    listing l;
    must(fs->readdir(me, root, 0, 0, true, l));
    BOOST_TEST((l.attrs.at("f").birth == born));
    if (known)
        BOOST_TEST((born->seconds > 1'700'000'000));
}

BOOST_AUTO_TEST_CASE(dot_and_dot_dot)
{
    const handle root = fs->root();
    const handle d = make_directory(root, "d");
    const handle e = make_directory(d, "e");
    BOOST_TEST((find(root, ".") == root));
    BOOST_TEST((find(root, "..") == root));
    BOOST_TEST((find(e, ".") == e));
    BOOST_TEST((find(e, "..") == d));
    BOOST_TEST((find(d, "..") == root));
    for (const char* name : {".", ".."}) {
        BOOST_TEST(fails(fs->create(me, d, name, create_mode::unchecked, {}, 0)) == EEXIST);
        BOOST_TEST(fails(fs->mkdir(me, d, name, {})) == EEXIST);
        BOOST_TEST(fails(fs->remove(me, d, name)) == EINVAL);
        BOOST_TEST(fails(fs->rmdir(me, d, name)) == EINVAL);
        BOOST_TEST(fails(fs->rename(me, d, name, root, "x")) == EINVAL);
        BOOST_TEST(fails(fs->rename(me, d, "e", d, name)) == EINVAL);
    }
}

BOOST_AUTO_TEST_CASE(lookup_gives_the_directory_too)
{
    const handle d = make_directory(fs->root(), "d");
    auto found = must(fs->lookup(me, fs->root(), "d"));
    BOOST_REQUIRE(found.directory);
    BOOST_TEST(found.directory->fileid == stat(fs->root()).fileid);
    BOOST_REQUIRE(found.found.attrs);
    BOOST_TEST(found.found.attrs->fileid == stat(d).fileid);
    BOOST_TEST(fails(fs->lookup(me, fs->root(), "missing")) == ENOENT);
    BOOST_TEST(fails(fs->lookup(me, make_file("f"), "x")) == ENOTDIR);
}

BOOST_AUTO_TEST_CASE(removed_files_are_stale)
{
    const handle root = fs->root();
    const handle f = make_file("f", "x");
    BOOST_TEST(get(me, f) == "x");
    auto c = must(fs->remove(me, root, "f"));
    BOOST_REQUIRE(c.after);
    BOOST_TEST(fails(fs->getattr(me, f)) == ESTALE);
    std::byte out[1];
    BOOST_TEST(fails(fs->read(me, f, 0, out)) == ESTALE);
    BOOST_TEST(fails(write(me, f, 0, "y")) == ESTALE);
    BOOST_TEST(fails(fs->setattr(me, f, {}, std::nullopt)) == ESTALE);
    BOOST_TEST(fails(fs->commit(me, f, 0, 0)) == ESTALE);
    BOOST_TEST(fails(fs->link(me, f, root, "again")) == ESTALE);
    BOOST_TEST(fails(fs->remove(me, root, "f")) == ENOENT);
    const handle d = make_directory(root, "d");
    must(fs->rmdir(me, root, "d"));
    BOOST_TEST(fails(fs->getattr(me, d)) == ESTALE);
    BOOST_TEST(fails(fs->lookup(me, d, "x")) == ESTALE);
    BOOST_TEST(fails(fs->create(me, d, "x", create_mode::unchecked, {}, 0)) == ESTALE);
    listing l;
    BOOST_TEST(fails(fs->readdir(me, d, 0, 0, false, l)) == ESTALE);
}

BOOST_AUTO_TEST_CASE(rmdir_takes_empty_directories_only)
{
    const handle root = fs->root();
    const handle d = make_directory(root, "d");
    make_file(me, d, "f");
    BOOST_TEST(fails(fs->rmdir(me, root, "d")) == ENOTEMPTY);
    BOOST_TEST(fails(fs->remove(me, root, "d")) == EISDIR);
    BOOST_TEST(fails(fs->rmdir(me, d, "f")) == ENOTDIR);
    must(fs->remove(me, d, "f"));
    must(fs->rmdir(me, root, "d"));
    BOOST_TEST(fails(fs->lookup(me, root, "d")) == ENOENT);
}

BOOST_AUTO_TEST_CASE(rename_keeps_handles)
{
    const handle root = fs->root();
    const handle a = make_directory(root, "a");
    const handle b = make_directory(root, "b");
    const handle f = make_file(me, a, "f", "data");
    auto moved = must(fs->rename(me, a, "f", b, "g"));
    BOOST_REQUIRE(moved.from.after);
    BOOST_REQUIRE(moved.to.after);
    BOOST_TEST(moved.to.after->fileid == stat(b).fileid);
    BOOST_TEST((find(b, "g") == f));
    BOOST_TEST(get(me, f) == "data");
    BOOST_TEST(fails(fs->lookup(me, a, "f")) == ENOENT);
    // A directory moves with all beneath it.
    must(fs->rename(me, root, "b", a, "c"));
    BOOST_TEST((find(a, "c") == b));
    BOOST_TEST((find(b, "..") == a));
    BOOST_TEST(get(me, f) == "data");
    BOOST_TEST(fails(fs->rename(me, root, "a", b, "loop")) == EINVAL);
    BOOST_TEST(fails(fs->rename(me, root, "missing", root, "x")) == ENOENT);
}

BOOST_AUTO_TEST_CASE(rename_over)
{
    const handle root = fs->root();
    const handle f = make_file("f", "new");
    const handle g = make_file("g", "old");
    must(fs->rename(me, root, "f", root, "g"));
    BOOST_TEST((find(root, "g") == f));
    BOOST_TEST(fails(fs->getattr(me, g)) == ESTALE);
    const handle d = make_directory(root, "d");
    const handle e = make_directory(root, "e");
    make_file(me, e, "x");
    BOOST_TEST(fails(fs->rename(me, root, "g", root, "d")) == EISDIR);
    BOOST_TEST(fails(fs->rename(me, root, "d", root, "g")) == ENOTDIR);
    BOOST_TEST(fails(fs->rename(me, root, "d", root, "e")) == ENOTEMPTY);
    must(fs->rename(me, root, "e", root, "d"));
    BOOST_TEST((find(root, "d") == e));
    BOOST_TEST(fails(fs->getattr(me, d)) == ESTALE);
    // Onto itself, by the same or another name of the same file: nothing happens.
    must(fs->rename(me, root, "g", root, "g"));
    must(fs->link(me, f, root, "h"));
    must(fs->rename(me, root, "g", root, "h"));
    BOOST_TEST(stat(f).links == 2u);
}

BOOST_AUTO_TEST_CASE(rename_over_no_other_file_than_the_victim)
{
    const handle root = fs->root();
    make_file("f", "new");
    const handle g = make_file("g", "old");
    const handle none;
    storage::request only = me;
    only.victim = &none; // a file has the name by now
    BOOST_TEST(fails(fs->rename(only, root, "f", root, "g")) == ESTALE);
    const handle other = make_file("h");
    only.victim = &other; // another one has it
    BOOST_TEST(fails(fs->rename(only, root, "f", root, "g")) == ESTALE);
    BOOST_TEST(fails(fs->rename(only, root, "f", root, "x")) == ESTALE); // none has it any more
    BOOST_TEST(get(me, find(root, "g")) == "old");
    BOOST_TEST(get(me, find(root, "f")) == "new");
    only.victim = &none;
    must(fs->rename(only, root, "f", root, "x"));
    only.victim = &g;
    must(fs->rename(only, root, "x", root, "g"));
    BOOST_TEST(get(me, find(root, "g")) == "new");
}

BOOST_AUTO_TEST_CASE(links_are_counted)
{
    const handle root = fs->root();
    const handle f = make_file("f", "x");
    auto l = must(fs->link(me, f, root, "g"));
    BOOST_REQUIRE(l.file);
    BOOST_TEST(l.file->links == 2u);
    BOOST_TEST((find(root, "g") == f));
    BOOST_TEST(fails(fs->link(me, f, root, "g")) == EEXIST);
    must(fs->remove(me, root, "f"));
    BOOST_TEST(stat(f).links == 1u);
    BOOST_TEST(get(me, f) == "x");
    const handle d = make_directory(root, "d");
    BOOST_TEST(fails(fs->link(me, d, root, "d2")) == EPERM);
    const std::uint32_t before = stat(d).links;
    make_directory(d, "sub");
    BOOST_TEST(stat(d).links == before + 1);
}

BOOST_AUTO_TEST_CASE(listing_names_all_once)
{
    const handle d = make_directory(fs->root(), "d");
    const handle sub = make_directory(d, "sub");
    for (int i = 0; i < 300; ++i)
        make_file(me, d, "file" + std::to_string(i));
    for (bool plus : {false, true}) {
        for (std::size_t room : {1u, 7u, 100u, 1000u}) {
            listing all(0);
            std::uint64_t verifier = 0;
            bool end = false;
            for (int calls = 0; !end && calls < 1000; ++calls) {
                all.room = room;
                auto r = must(fs->readdir(me, d, all.last, verifier, plus, all));
                verifier = r.verifier;
                end = r.end;
                BOOST_REQUIRE(r.directory);
            }
            BOOST_TEST(end);
            BOOST_TEST(all.seen.size() == 303u);
            for (const auto& [name, times] : all.seen)
                BOOST_TEST(times == 1, name);
            BOOST_TEST(all.ids["."] == stat(d).fileid);
            BOOST_TEST(all.ids[".."] == stat(fs->root()).fileid);
            if (plus) {
                BOOST_TEST((all.handles["sub"] == sub));
                BOOST_TEST(all.attrs["sub"].fileid == all.ids["sub"]);
                BOOST_TEST((all.handles["file7"] == find(d, "file7")));
                BOOST_TEST(all.attrs.size() >= 301u);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(listing_of_the_root_shows_nothing_above)
{
    listing l;
    auto r = must(fs->readdir(me, fs->root(), 0, 0, true, l));
    BOOST_TEST(r.end);
    BOOST_TEST(l.ids["."] == stat(fs->root()).fileid);
    BOOST_TEST(l.ids[".."] == stat(fs->root()).fileid);
    BOOST_REQUIRE(l.handles.contains(".."));
    BOOST_TEST((l.handles[".."] == fs->root()));
    BOOST_TEST(l.attrs[".."].fileid == stat(fs->root()).fileid);
}

BOOST_AUTO_TEST_CASE(cookies_survive_changes)
{
    const handle d = make_directory(fs->root(), "d");
    for (int i = 0; i < 100; ++i)
        make_file(me, d, "f" + std::to_string(i));
    listing all(40);
    auto first = must(fs->readdir(me, d, 0, 0, false, all));
    BOOST_TEST(!first.end);
    // What was listed goes away, as rm -r does: nothing that stays may be skipped or come twice.
    std::size_t removed = 0;
    for (const auto& [name, times] : all.seen) {
        if (name[0] == 'f') {
            must(fs->remove(me, d, name));
            ++removed;
        }
    }
    all.room = 1000;
    auto rest = must(fs->readdir(me, d, all.last, first.verifier, false, all));
    BOOST_TEST(rest.end);
    BOOST_TEST(all.seen.size() == 102u);
    for (const auto& [name, times] : all.seen)
        BOOST_TEST(times == 1, name);
    BOOST_TEST(removed >= 38u);
}

// A client may ask again from where it was before: its reply was lost, or rewinddir() was called.
BOOST_AUTO_TEST_CASE(a_listing_goes_on_behind_any_of_its_cookies)
{
    struct in_order final : directory_sink {
        explicit in_order(std::size_t n) : room(n) {}
        bool take(const directory_entry& e) override
        {
            if (entries.size() == room)
                return false;
            entries.emplace_back(e.name, e.cookie);
            return true;
        }
        std::size_t room;
        std::vector<std::pair<std::string, std::uint64_t>> entries;
    };
    constexpr std::size_t page = 5;
    const handle d = make_directory(fs->root(), "d");
    for (int i = 0; i < 60; ++i)
        make_file(me, d, "f" + std::to_string(i));
    for (const bool plus : {false, true}) {
        in_order whole(1000);
        const auto listed = must(fs->readdir(me, d, 0, 0, plus, whole));
        const auto& all = whole.entries;
        BOOST_TEST_REQUIRE(all.size() == 62u);
        // On, back, the same once more, and to and fro.
        for (const std::size_t behind :
             {0, 5, 10, 5, 5, 10, 15, 0, 50, 45, 55, 1, 0, 20, 25, 30, 25, 20, 61}) {
            BOOST_TEST_CONTEXT("behind " << behind << " entries, with attributes: " << plus)
            {
                in_order some(page);
                const std::uint64_t cookie = behind == 0 ? 0 : all[behind - 1].second;
                must(fs->readdir(me, d, cookie, behind == 0 ? 0 : listed.verifier, plus, some));
                const auto from = all.begin() + std::ptrdiff_t(behind);
                const std::vector expected(from, from + std::ptrdiff_t(std::min(page, all.size() - behind)));
                BOOST_TEST((some.entries == expected));
            }
        }
    }
}

// Entries of the same name may have the same cookie.
BOOST_AUTO_TEST_CASE(listings_of_two_directories_at_once)
{
    const handle directories[] = {make_directory(fs->root(), "d"), make_directory(fs->root(), "e")};
    for (const handle& d : directories) {
        for (int i = 0; i < 30; ++i)
            make_file(me, d, "f" + std::to_string(i));
    }
    listing all[2]{listing(0), listing(0)};
    std::uint64_t verifiers[2] = {};
    bool ends[2] = {};
    for (int pages = 0; (!ends[0] || !ends[1]) && pages < 100; ++pages) {
        for (const std::size_t i : {0, 1}) {
            if (ends[i])
                continue;
            all[i].room = 5;
            const auto page = must(fs->readdir(me, directories[i], all[i].last, verifiers[i], false, all[i]));
            verifiers[i] = page.verifier;
            ends[i] = page.end;
        }
    }
    for (const std::size_t i : {0, 1}) {
        BOOST_TEST(all[i].seen.size() == 32u);
        for (int n = 0; n < 30; ++n) {
            const std::string name = "f" + std::to_string(n);
            BOOST_TEST(all[i].ids[name] == stat(find(directories[i], name)).fileid);
        }
    }
}

BOOST_AUTO_TEST_CASE(nobody_goes_on_with_the_listing_of_another)
{
    if (!tells_users_apart()) {
        BOOST_ERROR("the back end acts for nobody but its owner: run this as root");
        return;
    }
    const handle d = make_directory(fs->root(), "d", 0700);
    for (int i = 0; i < 20; ++i)
        make_file(me, d, "f" + std::to_string(i));
    listing some(5);
    const auto first = must(fs->readdir(me, d, 0, 0, false, some));
    BOOST_TEST(!first.end);
    listing none;
    const request other = user(1234, 1234);
    BOOST_TEST(fails(fs->readdir(other, d, some.last, first.verifier, false, none)) == EACCES);
    BOOST_TEST(none.seen.empty());
    some.room = 100;
    BOOST_TEST(must(fs->readdir(me, d, some.last, first.verifier, false, some)).end);
    BOOST_TEST(some.seen.size() == 22u);
}

BOOST_AUTO_TEST_CASE(what_is_gone_is_not_listed_any_more)
{
    const handle d = make_directory(fs->root(), "d");
    for (int i = 0; i < 50; ++i)
        make_file(me, d, "f" + std::to_string(i));
    listing some(10);
    const auto first = must(fs->readdir(me, d, 0, 0, false, some));
    BOOST_TEST(!first.end);
    std::size_t kept = 0;
    for (int i = 0; i < 50; ++i) {
        const std::string name = "f" + std::to_string(i);
        kept += some.seen.contains(name);
        if (!some.seen.contains(name))
            must(fs->remove(me, d, name));
    }
    some.room = 1000;
    BOOST_TEST(must(fs->readdir(me, d, some.last, first.verifier, false, some)).end);
    BOOST_TEST(some.seen.size() == kept + 2);
}

BOOST_AUTO_TEST_CASE(a_cookie_needs_its_verifier)
{
    const handle d = make_directory(fs->root(), "d");
    for (int i = 0; i < 5; ++i)
        make_file(me, d, "f" + std::to_string(i));
    listing l(2);
    auto r = must(fs->readdir(me, d, 0, 0, false, l));
    BOOST_TEST(r.verifier != 0u);
    l.room = 100;
    BOOST_TEST((fails_with(fs->readdir(me, d, l.last, r.verifier + 1, false, l)) == errc::bad_cookie));
    BOOST_TEST((fails_with(fs->readdir(me, d, l.last, 0, false, l)) == errc::bad_cookie));
    BOOST_TEST(must(fs->readdir(me, d, l.last, r.verifier, false, l)).end);
    listing none(0);
    BOOST_TEST((fails_with(fs->readdir(me, d, 0, 0, false, none)) == errc::too_small));
    BOOST_TEST(fails(fs->readdir(me, make_file("f"), 0, 0, false, l)) == ENOTDIR);
    // A cookie made up by a client may give anything but a crash.
    for (std::uint64_t cookie : {~std::uint64_t(0), std::uint64_t(1) << 63, std::uint64_t(12345)}) {
        listing any;
        (void)run(fs->readdir(me, d, cookie, r.verifier, true, any));
    }
}

BOOST_AUTO_TEST_CASE(an_empty_directory_ends_at_once)
{
    const handle d = make_directory(fs->root(), "d");
    listing l;
    auto r = must(fs->readdir(me, d, 0, 0, true, l));
    BOOST_TEST(r.end);
    BOOST_TEST(l.seen.size() == 2u);
    // Asked again behind the last entry, with a full sink before.
    listing two(2);
    r = must(fs->readdir(me, d, 0, 0, false, two));
    if (!r.end) {
        two.room = 9;
        BOOST_TEST(must(fs->readdir(me, d, two.last, r.verifier, false, two)).end);
        BOOST_TEST(two.seen.size() == 2u);
    }
}

BOOST_AUTO_TEST_CASE(a_file_system_tells_its_size)
{
    auto s = must(fs->statfs(me, fs->root()));
    BOOST_TEST(s.total_bytes > 0u);
    BOOST_TEST(s.available_bytes <= s.free_bytes);
    BOOST_TEST(s.free_bytes <= s.total_bytes);
    BOOST_TEST(fs->info().max_name == 255u);
    BOOST_TEST(fs->info().max_file_size > 0xffffffffu);
}

BOOST_AUTO_TEST_CASE(handles_made_up_are_refused)
{
    const auto refused = [&](const handle& h) {
        auto r = run(fs->getattr(me, h));
        BOOST_REQUIRE(!r);
        BOOST_TEST((r.error() == errc::bad_handle || r.error().errno_value() == ESTALE), r.error().message());
    };
    refused(handle());
    const auto root = fs->root();
    const auto good = root.bytes();
    for (std::size_t n = 0; n < good.size(); ++n)
        refused(handle(good.first(n)));
    std::vector<std::byte> longer(good.begin(), good.end());
    longer.resize(64, std::byte(0xff));
    refused(handle(longer));
    for (std::size_t i = 0; i < good.size(); ++i) {
        std::vector<std::byte> changed(good.begin(), good.end());
        changed[i] ^= std::byte(0xff);
        refused(handle(changed));
    }
}

BOOST_AUTO_TEST_CASE(a_read_only_export_refuses_changes)
{
    make_file("f", "x");
    auto ro = make_backend(pool, {.read_only = true});
    const handle root = ro->root();
    BOOST_TEST(fails(ro->create(me, root, "new", create_mode::unchecked, {}, 0)) == EROFS);
    BOOST_TEST(fails(ro->mkdir(me, root, "new", {})) == EROFS);
    BOOST_TEST(fails(ro->symlink(me, root, "new", "x", {})) == EROFS);
    BOOST_TEST(fails(ro->mknod(me, root, "new", file_type::fifo, 0, 0, {})) == EROFS);
    BOOST_TEST(fails(ro->setattr(me, root, {}, std::nullopt)) == EROFS);
    BOOST_TEST(fails(ro->remove(me, root, "f")) == EROFS);
    BOOST_TEST(fails(ro->rmdir(me, root, "f")) == EROFS);
    BOOST_TEST(fails(ro->rename(me, root, "f", root, "g")) == EROFS);
    BOOST_TEST(fails(ro->link(me, root, root, "g")) == EROFS);
    const std::span<const std::byte> piece = bytes("x");
    BOOST_TEST(fails(ro->write(me, root, 0, std::span(&piece, 1), stability::unstable)) == EROFS);
    BOOST_TEST(must(ro->access(me, root, R_OK | W_OK | X_OK)) == unsigned(R_OK | X_OK));
}

BOOST_AUTO_TEST_CASE(an_export_is_read_only_as_long_as_it_is_told_so)
{
    auto other = make_backend(pool, {.read_only = true});
    const handle root = other->root();
    other->refuse_changes(false);
    BOOST_TEST(must(other->access(me, root, W_OK)) == unsigned(W_OK));
    const handle file = must(other->create(me, root, "new", create_mode::unchecked, {}, 0)).made.handle;
    const std::span<const std::byte> piece = bytes("x");
    must(other->write(me, file, 0, std::span(&piece, 1), stability::unstable));
    BOOST_TEST(fails(other->open(me, file, R_OK | W_OK, open_right::asked)) == 0);
    other->refuse_changes(true);
    BOOST_TEST(fails(other->open(me, file, R_OK | W_OK, open_right::asked)) == EROFS);
    BOOST_TEST(fails(other->open(me, file, R_OK, open_right::asked)) == 0);
    BOOST_TEST(fails(other->write(me, file, 0, std::span(&piece, 1), stability::unstable)) == EROFS);
    BOOST_TEST(fails(other->remove(me, root, "new")) == EROFS);
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace suite
