// SPDX-License-Identifier: Apache-2.0
// The client of version 4.1 against our own server: names, attributes, directories and open files.
#include "nfs4_direct_transport.hpp"
#include "nfs4_user_names.hpp"

#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/file.hpp>

#include <climits>
#include <functional>

BOOST_AUTO_TEST_SUITE(nfs4_client_test)

using namespace verbena;
using namespace verbena::test;
using nfs::v4::client;
using nfs::v4::file;
using nfs::v4::new_attributes;
using nfs::v4::open_how;

namespace {

struct fixture : nfs4_fixture {
    template<class F>
    auto run(const F& f)
    {
        return run_until_complete(*shard, f());
    }
    template<class F>
    auto good(const F& f)
    {
        auto got = run_until_complete(*shard, f());
        BOOST_REQUIRE_MESSAGE(got, (got ? std::string() : got.error().message()));
        return std::move(*got);
    }
    template<class F>
    nfsstat4 refused(const F& f)
    {
        auto got = run_until_complete(*shard, f());
        BOOST_REQUIRE(!got);
        return static_cast<nfsstat4>(got.error().code().value());
    }
    fixture()
    {
        start();
        top = good([&] { return users.root(); }).handle;
        top = good([&] { return users.walk(top, "/export", true); }).handle;
        BOOST_REQUIRE(run([&] { return users.learn_limits(top); }));
        wire.sent.clear();
    }
    ~fixture()
    {
        const auto end = [this]() -> task<void> { co_await users.close(); };
        run_until_complete(*shard, end());
    }
    static rpc::payload bytes_of(std::string_view text) { return {lease(), std::as_bytes(std::span(text))}; }
    static std::string text_of(const file::read_result& read)
    {
        std::string text;
        for (const auto piece : read.data.pieces())
            text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return text;
    }

    direct_transport wire{*this};
    client users{wire, nfs::identity(1000, 100, {}, "host"), "a client"};
    nfs::v4::known_handle top;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(sizes_are_what_fits_the_channel, fixture)
{
    BOOST_TEST(users.limits().read == 1u << 20);
    BOOST_TEST(users.limits().write == 1u << 20);
}

BOOST_FIXTURE_TEST_CASE(a_file_is_made_written_and_read, fixture)
{
    new_attributes attributes;
    attributes.mode = 0640;
    auto made = good([&] { return users.create(top, "file", attributes, open_how::unchecked); });
    BOOST_TEST(wire.sent.size() == 1u);
    BOOST_TEST(made->node().attributes.mode == 0640u);
    BOOST_TEST(made->node().attributes.uid == 1000u);
    std::string text;
    for (int i = 0; i < 300'000; ++i)
        text += static_cast<char>('a' + i % 23);
    BOOST_TEST(run([&] { return made->write(0, bytes_of(text)); }).has_value());
    BOOST_TEST(run([&] { return made->write(text.size(), bytes_of("end")); }).has_value());
    BOOST_TEST(made->uncommitted() == text.size() + 3);
    BOOST_TEST(run([&] { return made->close(); }).has_value());
    BOOST_TEST(made->uncommitted() == 0u);

    const auto found = good([&] { return users.lookup(top, "file"); });
    BOOST_TEST(found.attributes.size == text.size() + 3);
    BOOST_TEST((found.handle == made->node().handle));
    auto opened = good([&] { return users.open(found, share4::access_read); });
    const auto read = good([&] { return opened->read(0, 1 << 20); });
    BOOST_TEST((text_of(read) == text + "end"));
    BOOST_TEST(read.eof);
    const auto part = good([&] { return opened->read(1, 2); });
    BOOST_TEST(text_of(part) == "bc");
    BOOST_TEST(!part.eof);
    BOOST_TEST(good([&] { return opened->read(1 << 20, 5); }).eof);
    BOOST_TEST(refused([&] { return opened->truncate(0); }) == nfsstat4::openmode);
    BOOST_TEST(run([&] { return opened->close(); }).has_value());
    // No open is left behind: the client is destroyed at once.
    BOOST_TEST(wire.count(nfs_opnum4::open) == wire.count(nfs_opnum4::close));
}

BOOST_FIXTURE_TEST_CASE(who_makes_a_file_says_what_is_to_become_of_one_that_is_there, fixture)
{
    new_attributes empty;
    empty.size = 0;
    auto first = good([&] { return users.create(top, "file", {}, open_how::guarded); });
    BOOST_TEST(run([&] { return first->write(0, bytes_of("text")); }).has_value());
    BOOST_TEST(refused([&] { return users.create(top, "file", {}, open_how::guarded); }) == nfsstat4::exist);
    auto again = good([&] { return users.create(top, "file", {}, open_how::unchecked); });
    BOOST_TEST(again->node().attributes.size == 4u);
    auto cut = good([&] { return users.create(top, "file", empty, open_how::unchecked); });
    BOOST_TEST(cut->node().attributes.size == 0u);
    verifier4 verifier{};
    verifier[0] = std::byte(7);
    auto alone = good(
        [&] { return users.create(top, "alone", {}, open_how::exclusive, share4::access_both, verifier); });
    auto same = good(
        [&] { return users.create(top, "alone", {}, open_how::exclusive, share4::access_both, verifier); });
    BOOST_TEST((alone->node().handle == same->node().handle));
    verifier[0] = std::byte(8);
    BOOST_TEST(refused([&] {
                   return users.create(top, "alone", {}, open_how::exclusive, share4::access_both, verifier);
               }) == nfsstat4::exist);
    // Each is an open of its own.
    BOOST_TEST(run([&] { return alone->close(); }).has_value());
    BOOST_TEST(run([&] { return same->write(0, bytes_of("x")); }).has_value());
    for (file* each : {first.get(), again.get(), cut.get(), same.get()})
        BOOST_TEST(run([&] { return each->close(); }).has_value());
}

BOOST_FIXTURE_TEST_CASE(the_server_copies_by_itself, fixture)
{
    std::string text;
    for (int i = 0; i < 300'000; ++i)
        text += static_cast<char>('a' + i % 23);
    auto from = good([&] { return users.create(top, "from", {}, open_how::guarded); });
    BOOST_TEST(run([&] { return from->write(0, bytes_of(text)); }).has_value());
    BOOST_TEST(run([&] { return from->commit(); }).has_value());
    auto to = good([&] { return users.create(top, "to", {}, open_how::guarded); });
    wire.sent.clear();
    std::uint64_t told = 0;
    const std::function<void(std::uint64_t)> progress = [&](std::uint64_t bytes) { told += bytes; };
    BOOST_TEST(good([&] { return to->copy_from(*from, text.size(), progress); }) == text.size());
    BOOST_TEST(told == text.size());
    BOOST_TEST(wire.count(nfs_opnum4::copy) >= 1u);
    BOOST_TEST(wire.count(nfs_opnum4::read) + wire.count(nfs_opnum4::write) == 0u);
    BOOST_TEST((text_of(good([&] { return to->read(0, 1 << 20); })) == text));

    // What the server has not made stable and lost is copied again: nobody else has it.
    wire.sent.clear();
    int lost = 2;
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::copy)) {
            xdr::store_u32(reply.data() + reply.size() - 20,
                           static_cast<std::uint32_t>(stable_how4::unstable));
            xdr::store_u64(reply.data() + reply.size() - 16, 7);
        } else if (call.has(nfs_opnum4::commit)) {
            xdr::store_u64(reply.data() + reply.size() - 8, lost-- > 0 ? 8 : 7);
        }
    };
    BOOST_TEST(good([&] { return to->copy_from(*from, 1000, nullptr); }) == 1000u);
    BOOST_TEST(wire.count(nfs_opnum4::copy) == 3u);
    BOOST_TEST(wire.count(nfs_opnum4::commit) == 3u);
    // ... but not for ever.
    lost = INT_MAX;
    BOOST_TEST((run([&] { return to->copy_from(*from, 1000, nullptr); }).error() == std::errc::io_error));
    wire.on_reply_to = nullptr;
    BOOST_TEST(refused([&] { return to->copy_from(*from, text.size() + 1, nullptr); }) == nfsstat4::inval);
    BOOST_TEST(run([&] { return from->close(); }).has_value());
    BOOST_TEST(run([&] { return to->close(); }).has_value());

    client older(wire, nfs::identity(1000, 100, {}, "host"), {}, {1, 1});
    const auto node = good([&] { return older.walk(top, "from", true); });
    auto one = good([&] { return older.open(node, share4::access_both); });
    BOOST_TEST((run([&] { return one->copy_from(*one, 1, nullptr); }).error() == std::errc::not_supported));
    BOOST_TEST(run([&] { return one->close(); }).has_value());
    BOOST_TEST(older.session().is_of_one_server_with(users.session()));
    run_until_complete(*shard, [&]() -> task<void> { co_await older.close(); }());
}

namespace {

// Two files, and a server that copies no more than so many bytes in one call. Places are counted from the end of a message.
struct copying : fixture {
    static constexpr std::size_t part = 100'000;

    copying()
    {
        for (int i = 0; i < 250'000; ++i)
            text += static_cast<char>('a' + i % 23);
        from = good([&] { return users.create(top, "from", {}, open_how::guarded); });
        BOOST_TEST(run([&] { return from->write(0, bytes_of(text)); }).has_value());
        BOOST_TEST(run([&] { return from->commit(); }).has_value());
        to = good([&] { return users.create(top, "to", {}, open_how::guarded); });
        wire.on_call = [](const sent_compound& call, std::vector<std::byte>& message) {
            std::byte* const count = message.data() + message.size() - 20;
            if (call.has(nfs_opnum4::copy))
                xdr::store_u64(count, std::min<std::uint64_t>(xdr::load_u64(count), part));
        };
        wire.sent.clear();
    }
    ~copying()
    {
        wire.on_reply_to = nullptr;
        BOOST_TEST(run([&] { return from->close(); }).has_value());
        if (to)
            BOOST_TEST(run([&] { return to->close(); }).has_value());
    }
    auto copy()
    {
        return run([&] { return to->copy_from(*from, text.size(), nullptr); });
    }
    std::string copied()
    {
        const auto node = good([&] { return users.lookup(top, "to"); });
        auto opened = good([&] { return users.open(node, share4::access_read); });
        std::string all = text_of(good([&] { return opened->read(0, 1 << 20); }));
        BOOST_TEST(run([&] { return opened->close(); }).has_value());
        return all;
    }
    static void is_unstable(std::vector<std::byte>& reply, std::uint64_t verifier)
    {
        xdr::store_u32(reply.data() + reply.size() - 20, static_cast<std::uint32_t>(stable_how4::unstable));
        xdr::store_u64(reply.data() + reply.size() - 16, verifier);
    }

    std::string text;
    std::unique_ptr<file> from;
    std::unique_ptr<file> to;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_long_file_is_copied_by_several_calls, copying)
{
    const auto done = copy();
    BOOST_REQUIRE(done);
    BOOST_TEST(*done == text.size());
    BOOST_TEST(wire.count(nfs_opnum4::copy) == 3u);
    BOOST_TEST((copied() == text));
}

BOOST_FIXTURE_TEST_CASE(a_server_that_starts_anew_between_two_copies_is_asked_for_all_again, copying)
{
    int calls = 0;
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::copy))
            is_unstable(reply, calls++ == 0 ? 7 : 8);
        else if (call.has(nfs_opnum4::commit))
            xdr::store_u64(reply.data() + reply.size() - 8, 8);
    };
    const auto done = copy();
    BOOST_REQUIRE(done);
    BOOST_TEST(*done == text.size());
    BOOST_TEST(calls == 6);
    BOOST_TEST(wire.count(nfs_opnum4::commit) == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_copy_of_nothing_is_the_sources_end, copying)
{
    int calls = 0;
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::copy) && ++calls == 2)
            xdr::store_u64(reply.data() + reply.size() - 28, 0);
    };
    const auto done = copy();
    BOOST_REQUIRE(done);
    BOOST_TEST(*done == part);
    BOOST_TEST(calls == 2);
}

BOOST_FIXTURE_TEST_CASE(a_copy_that_goes_on_behind_its_answer_is_none, copying)
{
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (!call.has(nfs_opnum4::copy))
            return;
        xdr::store_u32(reply.data() + reply.size() - 32, 1);
        reply.insert(reply.end() - 28, 16, std::byte(1));
    };
    const auto done = copy();
    BOOST_TEST((!done && done.error() == std::errc::not_supported));
    BOOST_TEST(wire.count(nfs_opnum4::copy) == 1u);
}

// Whoever then writes by himself has to know how much there is to be cut.
BOOST_FIXTURE_TEST_CASE(a_copy_that_fails_midway_leaves_the_size_that_there_may_be, copying)
{
    int calls = 0;
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::copy) && ++calls == 2)
            refuse_at(reply, 4, nfsstat4::io);
    };
    BOOST_TEST(refused([&] { return to->copy_from(*from, text.size(), nullptr); }) == nfsstat4::io);
    const auto there = good([&] { return users.getattr(to->node().handle); });
    BOOST_TEST(there.size == 2 * part);
    BOOST_TEST(to->node().attributes.size >= there.size);
}

BOOST_FIXTURE_TEST_CASE(what_was_written_before_a_copy_is_not_sent_again_behind_it, copying)
{
    const std::string old(1000, '#');
    BOOST_TEST(run([&] { return to->write(0, bytes_of(old)); }).has_value());
    BOOST_TEST(to->uncommitted() == old.size());
    BOOST_REQUIRE(copy());
    // The server has started anew.
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::commit))
            xdr::store_u64(reply.data() + reply.size() - 8, 7);
    };
    BOOST_TEST(run([&] { return to->close(); }).has_value());
    BOOST_TEST((copied() == text));
    to = good([&] { return users.create(top, "to", {}, open_how::unchecked); });
    BOOST_TEST(run([&] { return to->write(0, bytes_of(old)); }).has_value());
    wire.sent.clear();
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::commit))
            refuse_at(reply, 2, nfsstat4::nospc);
    };
    BOOST_TEST(refused([&] { return to->copy_from(*from, text.size(), nullptr); }) == nfsstat4::nospc);
    BOOST_TEST(wire.count(nfs_opnum4::copy) == 0u);
}

BOOST_FIXTURE_TEST_CASE(names_are_made_found_moved_and_removed, fixture)
{
    new_attributes attributes;
    attributes.mode = 0750;
    const auto a = good([&] { return users.mkdir(top, "a", attributes); });
    BOOST_TEST((a.attributes.type == nfs_ftype4::dir));
    BOOST_TEST(a.attributes.mode == 0750u);
    const auto b = good([&] { return users.mkdir(a.handle, "b", attributes); });
    const auto link = good([&] { return users.symlink(b.handle, "up", "../b", {}); });
    BOOST_TEST((link.attributes.type == nfs_ftype4::lnk));
    BOOST_TEST(good([&] { return users.readlink(link.handle); }) == "../b");
    wire.sent.clear();
    BOOST_TEST((good([&] { return users.walk(top, "/a/./b/", true); }).handle == b.handle));
    BOOST_TEST(wire.sent.size() == 1u); // one call for all names
    BOOST_TEST((good([&] { return users.walk(top, "a/b/up", false); }).handle == link.handle));
    BOOST_TEST((good([&] { return users.walk(top, "a/b/up", true); }).handle == b.handle));
    BOOST_TEST((good([&] { return users.walk(top, "a/b/up/up/up", true); }).handle == b.handle));
    BOOST_TEST((good([&] { return users.walk(top, "", true); }).handle == top));
    (void)good([&] { return users.symlink(top, "round", "round", {}); });
    BOOST_TEST((run([&] { return users.walk(top, "round", true); }).error() ==
                std::errc::too_many_symbolic_link_levels));
    (void)good([&] { return users.symlink(top, "out", "/etc", {}); });
    BOOST_TEST((run([&] { return users.walk(top, "out/x", true); }).error() ==
                std::errc::too_many_symbolic_link_levels));
    BOOST_TEST(refused([&] { return users.walk(top, "a/none", true); }) == nfsstat4::noent);
    BOOST_TEST((run([&] { return users.lookup(top, std::string(2000, 'x')); }).error() ==
                std::errc::filename_too_long));

    BOOST_TEST(run([&] { return users.rename(b.handle, "up", top, "moved"); }).has_value());
    BOOST_TEST((good([&] { return users.lookup(top, "moved"); }).handle == link.handle));
    BOOST_TEST(refused([&] { return users.remove(top, "a"); }) == nfsstat4::notempty);
    BOOST_TEST(run([&] { return users.remove(a.handle, "b"); }).has_value());
    BOOST_TEST(run([&] { return users.remove(top, "a"); }).has_value());
    BOOST_TEST(refused([&] { return users.getattr(a.handle); }) == nfsstat4::stale);
    BOOST_TEST((good([&] { return users.access(top, access4::all); }) & access4::lookup) != 0u);
}

BOOST_FIXTURE_TEST_CASE(more_names_than_one_call_takes_are_looked_up_in_several, fixture)
{
    nfs::v4::known_handle here = top;
    std::string path;
    for (int i = 0; i < 70; ++i) {
        const std::string name = "d" + std::to_string(i);
        here = good([&] { return users.mkdir(here, name, {}); }).handle;
        path += "/" + name;
    }
    wire.sent.clear();
    BOOST_TEST((good([&] { return users.walk(top, path, true); }).handle == here));
    BOOST_TEST(wire.sent.size() > 1u);
    BOOST_TEST(wire.sent.size() < 10u);
}

BOOST_FIXTURE_TEST_CASE(a_directory_is_read_page_by_page, fixture)
{
    std::vector<std::string> made;
    for (int i = 0; i < 500; ++i) {
        made.push_back("entry " + std::to_string(i));
        auto opened = good([&] { return users.create(top, made.back(), {}, open_how::guarded); });
        BOOST_TEST(run([&] { return opened->close(); }).has_value());
    }
    std::ranges::sort(made);
    for (const bool plus : {false, true}) {
        wire.sent.clear();
        auto all = good([&] { return users.list(top, plus); });
        BOOST_TEST((wire.sent.size() > 1u) == plus);
        std::vector<std::string> names;
        for (const auto& entry : all) {
            names.push_back(entry.name);
            BOOST_TEST(entry.found.has_value() == plus);
            if (plus)
                BOOST_TEST(entry.found->attributes.uid == 1000u);
        }
        std::ranges::sort(names);
        BOOST_TEST(names == made);
    }
    const auto one = good([&] { return users.list(top, true); }).front();
    BOOST_TEST((good([&] { return users.lookup(top, one.name); }).handle == one.found->handle));
    BOOST_TEST((run([&] { return users.list(top, false, 100); }).error() == std::errc::value_too_large));
}

BOOST_FIXTURE_TEST_CASE(attributes_are_set, fixture)
{
    auto made = good([&] { return users.create(top, "file", {}, open_how::guarded); });
    BOOST_TEST(run([&] { return made->close(); }).has_value());
    const auto handle = made->node().handle;
    new_attributes wanted;
    wanted.mode = 0604;
    wanted.size = 12345;
    wanted.mtime = settime4{time_how4::set_to_client_time, {-5, 7}};
    wanted.atime = settime4{time_how4::set_to_client_time, {std::int64_t(1) << 33, 8}};
    BOOST_TEST(run([&] { return users.setattr(handle, wanted); }).has_value());
    const auto now = good([&] { return users.getattr(handle); });
    BOOST_TEST(now.mode == 0604u);
    BOOST_TEST(now.size == 12345u);
    BOOST_TEST((now.mtime == nfstime4{-5, 7}));
    BOOST_TEST((now.atime == nfstime4{std::int64_t(1) << 33, 8}));
    BOOST_TEST(good([&] { return users.space(top); }).total > 0u);
}

namespace {

/// Root's client of a server that tells names.
struct named_fixture : nfs4_fixture {
    named_fixture()
    {
        options[0].root_squash = false;
        start();
        user_names_options o;
        o.sends_names = true;
        their_users.emplace(tasks, theirs, o);
        commons->users = &*their_users;
        top = good(users.root()).handle;
        top = good(users.walk(top, "/export", true)).handle;
        new_attributes owned;
        owned.uid = 1000;
        owned.gid = 50;
        owned.mode = 0600;
        auto made = good(users.create(top, "file", owned, open_how::guarded));
        BOOST_TEST(run_until_complete(*shard, made->close()).has_value());
        handle = made->node().handle;
    }
    ~named_fixture()
    {
        ours.answer();
        turns(20);
        run_until_complete(*shard, users.close());
    }
    template<class T>
    T good(task<result<T>> t)
    {
        auto got = run_until_complete(*shard, std::move(t));
        BOOST_REQUIRE_MESSAGE(got, (got ? std::string() : got.error().message()));
        return std::move(*got);
    }
    static std::string owner_of(const nfs::v4::file_attributes& a)
    {
        return std::to_string(a.uid) + ' ' + std::to_string(a.gid);
    }

    named_accounts theirs, ours;
    std::optional<user_names> their_users;
    user_names our_users{tasks, ours};
    direct_transport wire{*this};
    client users{wire, nfs::identity(0, 0, {}, "host"), "a client"};
    nfs::v4::known_handle top, handle;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(owners_that_are_named_are_looked_up, named_fixture)
{
    BOOST_TEST(owner_of(good(users.getattr(handle))) == "65534 65534");
    users.use_names(&our_users);
    ours.names = {{{account_kind::user, 1234}, "alice"}, {{account_kind::group, 77}, "staff"}};
    BOOST_TEST(owner_of(good(users.getattr(handle))) == "1234 77");
    const auto found = good(users.lookup(top, "file"));
    BOOST_TEST(owner_of(found.attributes) == "1234 77");
    BOOST_TEST(owner_of(good(users.walk(top, "file", true)).attributes) == "1234 77");
    const auto listed = good(users.list(top, true));
    BOOST_TEST(!listed.empty());
    for (const auto& entry : listed)
        BOOST_TEST(owner_of(entry.found->attributes) == "1234 77");
    auto opened = good(users.open(found, share4::access_read));
    BOOST_TEST(owner_of(opened->node().attributes) == "1234 77");
    BOOST_TEST(run_until_complete(*shard, opened->close()).has_value());
    BOOST_TEST((ours.asked == std::vector<std::string>{"u alice", "g staff"}));
    // What was known is shown while it can't be looked up, however long that is so.
    user_names_options soon;
    soon.kept = 1s;
    soon.most_later = 10s;
    user_names shown(tasks, ours, soon);
    users.use_names(&shown);
    BOOST_TEST(owner_of(good(users.getattr(handle))) == "1234 77");
    ours.fails = true;
    for (const duration later : {2s, 8s, 8s}) {
        clock.advance(later);
        BOOST_TEST(owner_of(good(users.getattr(handle))) == "1234 77");
    }
    const auto told = run_until_complete(*shard, shown.id_of(account_kind::user, "alice@example.org"));
    BOOST_TEST((told.how == user_names::outcome::given_up));
    ours.fails = false;
    // Whoever is not there, or of another domain, is nobody.
    user_names_options elsewhere;
    elsewhere.domain = "example.com";
    user_names others(tasks, ours, elsewhere);
    users.use_names(&others);
    BOOST_TEST(owner_of(good(users.getattr(handle))) == "65534 65534");
    ours.names.clear();
    user_names none(tasks, ours);
    users.use_names(&none);
    BOOST_TEST(owner_of(good(users.getattr(handle))) == "65534 65534");
    users.use_names(nullptr);
}

BOOST_FIXTURE_TEST_CASE(a_page_waits_for_slow_names_once, named_fixture)
{
    users.use_names(&our_users);
    (void)good(users.getattr(top)); // root's name, and the domain
    for (std::uint32_t i = 0; i < 5; ++i) {
        new_attributes owned;
        owned.uid = 2000 + i;
        owned.gid = 2000 + i;
        theirs.names[{account_kind::user, 2000 + i}] = "user" + std::to_string(i);
        theirs.names[{account_kind::group, 2000 + i}] = "group" + std::to_string(i);
        auto made = good(users.create(top, std::to_string(i), owned, open_how::guarded));
        BOOST_TEST(run_until_complete(*shard, made->close()).has_value());
    }
    new_attributes owned; // the last one, by who is known
    owned.uid = 1000;
    owned.gid = 50;
    auto last = good(users.create(top, "last", owned, open_how::guarded));
    BOOST_TEST(run_until_complete(*shard, last->close()).has_value());
    user_names fresh(tasks, ours);
    users.use_names(&fresh);
    (void)good(users.getattr(handle));
    ours.be_slow();
    const time_point before = clock.now();
    ours.asked.clear();
    std::size_t known = 0;
    for (const auto& entry : good(users.list(top, true))) {
        const bool is_known = entry.name == "file" || entry.name == "last";
        known += is_known ? 1 : 0;
        BOOST_TEST(owner_of(entry.found->attributes) == (is_known ? "1000 50" : "65534 65534"), entry.name);
    }
    BOOST_TEST(known == 2u);
    BOOST_TEST((clock.now() - before == 2s));
    BOOST_TEST(ours.asked.size() == 1u);
    users.use_names(nullptr);
    ours.answer();
    turns(20);
}

BOOST_FIXTURE_TEST_CASE(a_server_that_wants_no_numbers_gets_names, named_fixture)
{
    // The server's own numbers are others than the client's.
    theirs.names[{account_kind::user, 3000}] = "bob";
    ours.names[{account_kind::user, 1001}] = "bob";
    int refused = 0;
    wire.on_reply_to = [&](const sent_compound& to, std::vector<std::byte>& reply) {
        if (!to.has(nfs_opnum4::setattr) || refused++ != 0)
            return;
        refuse_at(reply, 2, nfsstat4::badowner);
        reply.resize(reply.size() + 4); // the attributes that were set: none
    };
    new_attributes owned;
    owned.uid = 1001;
    const auto set = [&] { return run_until_complete(*shard, users.setattr(handle, owned)); };
    BOOST_TEST((set().error().code() == make_error_code(nfsstat4::badowner)));
    BOOST_TEST(refused == 1);
    refused = 0;
    users.use_names(&our_users);
    BOOST_TEST(set().has_value());
    BOOST_TEST(refused == 2);
    ours.names = {{{account_kind::user, 3000}, "bob"}};
    user_names fresh(tasks, ours);
    users.use_names(&fresh);
    BOOST_TEST(good(users.getattr(handle)).uid == 3000u);
    // Without a name there is nothing to send.
    refused = 0;
    owned.uid = 1002;
    BOOST_TEST((set().error().code() == make_error_code(nfsstat4::badowner)));
    BOOST_TEST(refused == 1);
    // One that is late may have one.
    refused = 0;
    owned.uid = 1003;
    ours.be_slow();
    BOOST_TEST((set().error() == std::errc::timed_out));
    BOOST_TEST(refused == 1);
    ours.answer();
    turns(20);
    users.use_names(nullptr);
}

BOOST_AUTO_TEST_CASE(owners_are_numbers_or_nobody)
{
    BOOST_TEST(nfs::v4::owner_number("0") == 0u);
    BOOST_TEST(nfs::v4::owner_number("4294967294") == 4294967294u);
    for (const char* other : {"", "joe@example.org", "12x", "-1", "4294967296"})
        BOOST_TEST(nfs::v4::owner_number(other) == nfs::v4::file_attributes::nobody);
}

BOOST_AUTO_TEST_SUITE_END()
