// SPDX-License-Identifier: Apache-2.0
// Minor version 0: calls that come again, by the duplicate-request cache.
#include "nfs4_v40_client.hpp"

#include <verbena/protocols/rpc/duplicate_request_cache.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_v40_repeats_test)

using namespace verbena;
using namespace verbena::test;

BOOST_FIXTURE_TEST_CASE(the_first_operation_that_decides_says_what_a_repeat_is, v40_fixture)
{
    serve();
    const auto rule = [this](const auto&... args) {
        const auto c = prepare(minor, [&](compound_request& out) { (out.add(args), ...); });
        BOOST_REQUIRE((c->decode_header() == rpc::call_verdict::good));
        const std::size_t at = c->args().position();
        const rpc::repeat_rule is = program->repeats(*c);
        BOOST_TEST(c->args().position() == at);
        return is;
    };
    using enum rpc::repeat_rule;
    const WRITE4args write{{}, 0, stable_how4::unstable, bytes_of("text")};
    BOOST_CHECK(rule(PUTROOTFH4args(), GETFH4args()) == runs_again);
    BOOST_CHECK(rule(PUTROOTFH4args(), LOOKUP4args{"x"}, REMOVE4args{"f"}) == is_answered);
    BOOST_CHECK(rule(PUTROOTFH4args(), write, REMOVE4args{"f"}) == runs_in_turn);
    BOOST_CHECK(rule(SETCLIENTID4args()) == is_answered);
    BOOST_CHECK(rule(READ4args()) == runs_again);
    BOOST_CHECK(rule(EXCHANGE_ID4args(), REMOVE4args{"f"}) == runs_again); // it ends there
    minor = 1;
    BOOST_CHECK(rule(PUTROOTFH4args(), REMOVE4args{"f"}) == runs_again);
}

struct cached_fixture : v40_fixture {
    cached_fixture()
    {
        serve();
        guarded.add(*program);
    }
    /// In "/export", by the cache.
    template<class Args>
    answer4 ask(const Args& args)
    {
        const auto write = [&](compound_request& out) {
            out.add(PUTROOTFH4args()).add(LOOKUP4args{"export"}).add(args);
        };
        const auto c = prepare(minor, write);
        BOOST_REQUIRE(run_until_complete(*shard, guarded.dispatch(*c)));
        return answer_of(*c);
    }
    /// Likewise, with a WRITE behind it whose data lie in a Read chunk. Nothing where the call is dropped.
    template<class... Args>
    std::optional<answer4> write_from_chunk(bool is_lost, const client0::opened& file, const Args&... before)
    {
        memory_call c(pool, from);
        if (is_lost)
            c.pull_fails = std::errc::connection_aborted;
        xdr::encoder out = c.begin(100003, 4, 1, &*user);
        compound_request request(out, compound_head());
        request.add(PUTROOTFH4args()).add(LOOKUP4args{"export"});
        (request.add(before), ...);
        request.add(PUTFH4args{file.fh()});
        WRITE4args data{file.id, 0, stable_how4::unstable, {}};
        data.data.length = 4;
        data.data.external = true;
        request.add(data);
        c.end(out, std::vector<std::byte>(4, std::byte('t')));
        if (!run_until_complete(*shard, guarded.dispatch(c)))
            return std::nullopt;
        return answer_of(c);
    }
    static CREATE4args folder(std::string_view name)
    {
        CREATE4args make;
        make.objtype.type = nfs_ftype4::dir;
        make.objname = name;
        return make;
    }
    rpc::duplicate_request_cache cache{1};
    rpc::service_dispatcher guarded{*shard, &cache};
};

BOOST_FIXTURE_TEST_CASE(a_call_that_comes_again_is_answered_again, cached_fixture)
{
    BOOST_TEST(ask(folder("d")).status() == nfsstat4::ok);
    BOOST_TEST(ask(folder("d")).status() == nfsstat4::ok);
    BOOST_TEST(ask(REMOVE4args{"d"}).status() == nfsstat4::ok);
    BOOST_TEST(ask(REMOVE4args{"d"}).status() == nfsstat4::ok);
    BOOST_TEST(ask(LOOKUP4args{"d"}).status() == nfsstat4::noent);
    BOOST_TEST(cache.stats(0).replayed.value() == 2u);
}

// Data are kept with it, as far as a reply is.
BOOST_FIXTURE_TEST_CASE(a_change_whose_call_reads_is_not_made_again, cached_fixture)
{
    client0 a(*this, "a");
    a.connect();
    const auto file = a.ready(a.creating("f"));
    const std::vector<std::byte> text(20000, std::byte('t'));
    BOOST_TEST(compound(PUTFH4args{file.fh()},
                        WRITE4args{file.id, 0, stable_how4::unstable, std::span<const std::byte>(text)})
                   .status() == nfsstat4::ok);
    const auto run = [&](std::uint32_t count) {
        const auto c = prepare(0, [&](compound_request& out) {
            out.add(PUTROOTFH4args()).add(LOOKUP4args{"export"}).add(folder("d" + std::to_string(count)));
            out.add(PUTFH4args{file.fh()}).add(READ4args{file.id, 0, count}).add(READ4args{file.id, 1, 10});
        });
        BOOST_REQUIRE(run_until_complete(*shard, guarded.dispatch(*c)));
        BOOST_TEST(c->results().payloads().size() == (count == 1000u ? 2u : 1u)); // transports place them
        return answer_of(*c);
    };
    for (const std::uint32_t count : {1000u, 1'000'000u}) {
        const auto replayed = cache.stats(0).replayed.value();
        answer4 first = run(count);
        answer4 again = run(count);
        BOOST_TEST(cache.stats(0).replayed.value() == replayed + 1);
        BOOST_CHECK(first.bytes() == again.bytes());
        again.good<PUTROOTFH4res>();
        again.good<LOOKUP4res>();
        again.good<CREATE4res>();
        again.good<PUTFH4res>();
        const auto read = again.take<READ4res>();
        BOOST_TEST(read.status == nfsstat4::ok);
        BOOST_TEST(!read.eof);
        if (count == 1000u)
            BOOST_TEST(read.data.length == count);
        else
            BOOST_TEST((read.data.length > 3000 && read.data.length < 4096)); // it may be less than asked for
    }
}

// How long that is the cache says, and where there is none nothing bounds it.
BOOST_FIXTURE_TEST_CASE(a_call_that_changes_something_answers_no_more_than_the_cache_keeps, cached_fixture)
{
    client0 a(*this, "a");
    a.connect();
    const auto file = a.ready(a.creating("f"));
    const std::vector<std::byte> text(20000, std::byte('t'));
    BOOST_TEST(compound(PUTFH4args{file.fh()},
                        WRITE4args{file.id, 0, stable_how4::unstable, std::span<const std::byte>(text)})
                   .status() == nfsstat4::ok);
    rpc::duplicate_request_options short_ones;
    short_ones.max_reply = 1500;
    rpc::duplicate_request_cache small(1, short_ones);
    rpc::service_dispatcher by_small(*shard, &small);
    by_small.add(*program);
    const auto read = [&](rpc::service_dispatcher& by, std::string_view made) {
        const auto c = prepare(0, [&](compound_request& out) {
            out.add(PUTROOTFH4args()).add(LOOKUP4args{"export"}).add(folder(made));
            out.add(PUTFH4args{file.fh()}).add(READ4args{file.id, 0, 20000});
        });
        BOOST_REQUIRE(run_until_complete(*shard, by.dispatch(*c)));
        answer4 out = answer_of(*c);
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        out.good<CREATE4res>();
        out.good<PUTFH4res>();
        return out.take<READ4res>().data.length;
    };
    BOOST_TEST(read(by_small, "d") < 1500u);
    BOOST_TEST(read(by_small, "d") > 1000u);
    BOOST_TEST(small.stats(0).replayed.value() == 1u);
    BOOST_TEST(read(*dispatcher, "e") == 20000u);
}

// Nobody hears what was done before the data of a WRITE did not come, and the repeat does not do it again.
BOOST_FIXTURE_TEST_CASE(a_call_that_is_dropped_behind_a_change_goes_on_where_it_ended, cached_fixture)
{
    client0 a(*this, "a");
    a.connect();
    const auto file = a.ready(a.creating("f"));
    (void)write_from_chunk(true, file, folder("d"));
    for (int i = 0; i < 2; ++i) {
        std::optional<answer4> out = write_from_chunk(false, file, folder("d"));
        BOOST_TEST_REQUIRE(out.has_value());
        BOOST_TEST(out->status() == nfsstat4::delay);
        BOOST_TEST(out->operations() == 5u);
        out->good<PUTROOTFH4res>();
        out->good<LOOKUP4res>();
        out->good<CREATE4res>();
    }
    BOOST_TEST(cache.stats(0).replayed.value() == 2u);
    // What had changed nothing runs.
    BOOST_TEST(!write_from_chunk(true, file).has_value());
    const auto written = write_from_chunk(false, file);
    BOOST_TEST_REQUIRE(written.has_value());
    BOOST_TEST(written->status() == nfsstat4::ok);
}

BOOST_AUTO_TEST_SUITE_END()
