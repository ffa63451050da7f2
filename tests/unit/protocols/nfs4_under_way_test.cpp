// SPDX-License-Identifier: Apache-2.0
// Operations that take their time: a client's lease does not end while its compound runs.
#include "nfs4_server.hpp"

#include <verbena/core/event.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_under_way_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// What reads or changes data waits while it is `held`.
class slow_files final : public storage::gated_backend {
public:
    using gated_backend::gated_backend;
    bool gates(storage::operation op) const noexcept override
    {
        return op == storage::operation::read || op == storage::operation::write ||
               op == storage::operation::setattr;
    }
    task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
    {
        ++waiting;
        while (held)
            (void)co_await go.wait();
        --waiting;
        co_return result<void>();
    }
    void hold()
    {
        held = true;
        go.reset();
    }
    void release()
    {
        held = false;
        go.set();
    }
    bool held = false;
    int waiting = 0;
    event go;
};

struct fixture : nfs4_fixture {
    fixture()
    {
        options[0].backend = &slow;
        first.connect();
        second.connect();
        tend();
    }
    ~fixture()
    {
        slow.release();
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
    }
    slow_files slow{*files};
    client4 first{*this, "a"}, second{*this, "b"};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_lease_does_not_end_while_a_compound_runs, fixture)
{
    OPEN4args denying = first.creating("f");
    denying.share_deny = share4::deny_write;
    const auto file = first.open(denying);
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    const OPEN4args writing = second.opening("f", share4::access_write);
    slow.hold();
    const auto c = begin(first.sequence(), PUTFH4args{client4::handle_of(file)}, READ4args{file.id, 0, 10});
    BOOST_TEST_REQUIRE(slow.waiting == 1);
    // The second one renews its own meanwhile.
    for (int i = 0; i < 5; ++i) {
        pass(60s, 1s);
        BOOST_TEST(second.open(writing).status == nfsstat4::share_denied);
    }
    slow.release();
    turns();
    BOOST_TEST(answer_of(*c).status() == nfsstat4::ok);
    // It has a whole lease from the end of the compound on.
    pass(89s, 1s);
    BOOST_TEST(second.open(writing).status == nfsstat4::share_denied);
    pass(1s, 1s);
    BOOST_TEST(second.open(writing).status == nfsstat4::ok);
    BOOST_TEST(first.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
}

BOOST_AUTO_TEST_SUITE_END()
