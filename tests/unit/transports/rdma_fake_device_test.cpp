// SPDX-License-Identifier: Apache-2.0
// The provider over rdma-core on a device that is none: what it is asked for, what it says by itself, and its removal.
#include <boost/test/unit_test.hpp>

#include "../../../transports/rdma/listener.hpp"
#include "../../../transports/rdma/queue_pair.hpp"
#include "fake_rdma_core.hpp"

#include <semaphore>

BOOST_AUTO_TEST_SUITE(rdma_fake_device_test)

using namespace verbena;
using namespace verbena::rdma_test;

namespace {

std::vector<verbs::send_request> sends(std::size_t count)
{
    std::vector<verbs::send_request> all(count);
    for (std::size_t i = 0; i < count; ++i)
        all[i].id = 100 + i;
    return all;
}

void completes(const fake::request& r)
{
    ibv_wc c{};
    c.wr_id = r.id;
    it().completions.push_back(c);
}

/// Does `body` with a queue pair on a device whose transport is `transport`.
void with_queue_pair(ibv_transport_type transport,
                     const std::function<task<void>(fixture&, rdma::queue_pair&, ends&)>& body)
{
    it().device.transport_type = transport;
    it().doorbells.clear();
    it().modifications.clear();
    fixture f;
    const auto all = [&]() -> task<void> {
        ends seen;
        auto q = co_await f.connected(seen);
        co_await body(f, *q, seen);
    };
    run_until_complete(*f.shard, all());
    it().device.transport_type = IBV_TRANSPORT_IB;
}

/// An RDMA Read, and `count` Sends behind it.
class read_and_sends {
public:
    explicit read_and_sends(std::size_t count) : batch(sends(count + 1)) {}
    /// Before it is posted.
    task<void> make_sink(verbs::protection_domain& d)
    {
        auto made = co_await d.register_memory(memory_);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        region_ = std::move(*made);
        sink_ = {memory_.data(), 4096, 0};
        batch[0].opcode = verbs::opcode::rdma_read;
        batch[0].segments = {&sink_, 1};
    }
    std::vector<verbs::send_request> batch;

private:
    std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
    std::unique_ptr<verbs::region> region_;
    verbs::segment sink_{};
};

} // namespace

BOOST_AUTO_TEST_CASE(an_event_of_a_queue_pair_ends_it)
{
    fixture f;
    auto body = [&f]() -> task<void> {
        ends seen;
        auto q = co_await f.connected(seen);
        const unsigned before = it().acknowledged;
        it().say(IBV_EVENT_QP_FATAL, &it().qp);
        const auto told = [before] { return it().acknowledged != before; };
        co_await f.wait_until(told);
        BOOST_TEST(it().acknowledged == before + 1);
        co_await f.pass(fixture::managers_delay - 1ns);
        BOOST_TEST(q->connected());
        co_await f.pass(1ns);
        co_await f.wait_until([&seen] { return seen.count != 0; });
        BOOST_TEST(seen.count == 1U);
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(a_late_event_of_a_queue_pair_does_not_touch_the_next_of_its_number)
{
    fixture f;
    auto body = [&f]() -> task<void> {
        ends first_seen;
        ends seen;
        auto first = co_await f.connected(first_seen);
        const serial old = first->serial_number();
        const std::uint32_t number = first->number();
        first.reset();
        BOOST_TEST(first_seen.count == 0U); // destroyed: nobody is told
        auto q = co_await f.connected(seen);
        BOOST_TEST(q->number() == number);
        BOOST_TEST(q->serial_number() > old);
        // As it was told by the shard that read it, before the queue pair went.
        f.impl().on_notice({&it().verbs(), device_event::queue_pair_error, old});
        // Nor one of a completion queue with a queue pair's serial.
        f.impl().on_notice({&it().verbs(), device_event::completion_queue_error, old});
        f.impl().on_notice({&it().verbs(), device_event::completion_queue_error, q->serial_number()});
        co_await f.pass(fixture::managers_delay * 4);
        BOOST_TEST(q->connected());
        BOOST_TEST(seen.count == 0U);
        f.impl().on_notice({&it().verbs(), device_event::queue_pair_error, q->serial_number()});
        co_await f.pass(fixture::managers_delay);
        co_await f.wait_until([&seen] { return seen.count != 0; });
        BOOST_TEST(!q->connected());
        BOOST_TEST(seen.count == 1U);
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(an_event_of_a_completion_queue_ends_those_that_use_it)
{
    fixture f;
    auto body = [&f]() -> task<void> {
        ends seen;
        auto q = co_await f.connected(seen);
        serial queue = 1;
        while (!q->completes_at(queue))
            ++queue;
        f.impl().on_notice({&it().verbs(), device_event::completion_queue_error, queue - 1});
        co_await f.pass(fixture::managers_delay * 4);
        BOOST_TEST(q->connected());
        f.impl().on_notice({&it().verbs(), device_event::completion_queue_error, queue});
        co_await f.wait_until([&seen] { return seen.count != 0; });
        BOOST_TEST(seen.count == 1U);
        // It is used no more.
        ends next_seen;
        q.reset();
        auto next = co_await f.connected(next_seen);
        BOOST_TEST(!next->completes_at(queue));
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(grants_are_made_by_the_best_that_the_device_has)
{
    constexpr unsigned both = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    const auto kind = [](unsigned flags, std::optional<grant_kind> wanted = {}) {
        it().attributes.device_cap_flags = flags;
        return query(&it().verbs(), wanted);
    };
    // Says so, and its provider makes none.
    BOOST_TEST((kind(both)->grants == grant_kind::region));
    it().makes_windows = true;
    BOOST_TEST((kind(0)->grants == grant_kind::region));
    const auto first = kind(IBV_DEVICE_MEM_WINDOW);
    BOOST_TEST((first->grants == grant_kind::type_1_window));
    BOOST_TEST((it().made_type == IBV_MW_TYPE_1));
    BOOST_TEST(!first->can.grant_per_queue_pair);
    BOOST_TEST(!first->can.remote_invalidate);
    BOOST_TEST(!first->can.local_invalidate);
    const auto second = kind(both);
    BOOST_TEST((second->grants == grant_kind::type_2_window));
    BOOST_TEST((it().made_type == IBV_MW_TYPE_2));
    BOOST_TEST(second->can.grant_per_queue_pair);
    BOOST_TEST(second->can.remote_invalidate);
    // What is asked for, or nothing.
    BOOST_TEST((kind(both, grant_kind::type_1_window)->grants == grant_kind::type_1_window));
    BOOST_TEST((kind(both, grant_kind::region)->grants == grant_kind::region));
    const auto refused = kind(IBV_DEVICE_MEM_WINDOW, grant_kind::type_2_window);
    BOOST_REQUIRE(!refused);
    BOOST_TEST((refused.error() == std::errc::operation_not_supported));
    auto r = reactor::create({});
    BOOST_REQUIRE(r);
    blocking_pool pool{1};
    options o;
    o.grants = grant_kind::type_2_window;
    const auto context = make_context(**r, {pool, pool}, o);
    BOOST_REQUIRE(!context);
    BOOST_TEST((context.error() == std::errc::operation_not_supported));
}

namespace {

/// The device as it was made anew, beside the one that was there.
void another_comes(unsigned flags)
{
    it().come_back();
    it().attributes.device_cap_flags = flags;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_device_that_comes_later_and_can_do_less_is_not_used)
{
    it().makes_windows = true;
    fixture f(IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
    const auto body = [&f]() -> task<void> {
        BOOST_TEST(f.context->query().remote_invalidate);
        another_comes(0);
        auto* const id = new rdma_cm_id{};
        id->verbs = &it().verbs();
        const verbs::queue_pair_options o;
        auto made = co_await f.impl().make_pair(id, f.impl_part(), o, "peer:1", "peer");
        BOOST_TEST_REQUIRE(!made);
        BOOST_TEST(why(made).find("came later and can do less") != std::string::npos, why(made));
        BOOST_TEST(f.context->counters().ends[std::size_t(end_cause::setup_failed)].load() == 1U);
        delete id;
        // One that can do as much is, whatever is looked at for each connection.
        it().attributes.max_qp_rd_atom = 2;
        another_comes(IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
        ends seen;
        const auto q = co_await f.connected(seen);
        BOOST_TEST(q->connected());
    };
    run_until_complete(*f.shard, body());
    it().makes_windows = false;
    it().attributes.max_qp_rd_atom = 16;
}

BOOST_AUTO_TEST_CASE(a_grant_without_a_queue_pair_is_of_the_device_that_is_connected)
{
    fixture f;
    const auto body = [&f]() -> task<void> {
        ends seen;
        std::vector<std::byte> bytes(64);
        auto region = co_await f.domain->register_memory(bytes);
        BOOST_REQUIRE_MESSAGE(region, why(region));
        auto q = co_await f.connected(seen);
        another_comes(0);
        auto beside = co_await f.connected(seen);
        auto of_either = co_await f.domain->make_grant(bytes, verbs::access::remote_read, nullptr);
        BOOST_TEST(!of_either);
        // The connection came again, by the other.
        q.reset();
        auto of_one = co_await f.domain->make_grant(bytes, verbs::access::remote_read, nullptr);
        BOOST_REQUIRE_MESSAGE(of_one, why(of_one));
        BOOST_TEST(of_one->valid());
        BOOST_TEST(it().registered_with == &it().verbs());
        *of_one = verbs::grant();
        region->reset();
    };
    run_until_complete(*f.shard, body());
}

// InfiniBand's code 12 is 0.64 ms, and 0, as the connection manager leaves it, 655 ms: so long would a peer wait whenever it
// meets no receive. iWARP has no such answer.
BOOST_AUTO_TEST_CASE(a_peer_that_meets_no_receive_tries_again_soon)
{
    with_queue_pair(IBV_TRANSPORT_IB, [](fixture&, rdma::queue_pair&, ends&) -> task<void> {
        BOOST_REQUIRE(it().modifications.size() == 1U);
        BOOST_TEST(it().modifications[0].what == int(IBV_QP_MIN_RNR_TIMER));
        BOOST_TEST(unsigned(it().modifications[0].to.min_rnr_timer) == 12U);
        co_return;
    });
    with_queue_pair(IBV_TRANSPORT_IWARP, [](fixture&, rdma::queue_pair&, ends&) -> task<void> {
        BOOST_TEST(it().modifications.empty());
        co_return;
    });
}

BOOST_AUTO_TEST_CASE(shards_spread_over_the_interrupt_vectors)
{
    for (int shard = 0; shard < 6; ++shard) {
        fixture f(0, {}, static_cast<unsigned>(shard));
        it().vector = -1;
        auto body = [&f]() -> task<void> {
            ends seen;
            auto q = co_await f.connected(seen);
        };
        run_until_complete(*f.shard, body());
        BOOST_TEST(it().vector == shard % it().verbs().num_comp_vectors);
    }
}

BOOST_AUTO_TEST_CASE(what_completes_between_the_drain_and_the_arming_is_not_slept_over)
{
    fixture f;
    ends seen;
    std::unique_ptr<rdma::queue_pair> q;
    auto connect = [&]() -> task<void> { q = co_await f.connected(seen); };
    run_until_complete(*f.shard, connect());
    BOOST_REQUIRE(q->post_send(sends(1)));
    BOOST_REQUIRE(f.shard->native_handle());
    while (f.shard->poll()) {
    }
    BOOST_TEST(f.shard->try_arm());
    BOOST_TEST(!f.shard->poll());
    // The device tells nobody of this one: when it came, nobody had asked yet.
    ibv_wc c{};
    c.wr_id = it().doorbells.back().back().id;
    it().just_before_arming = c;
    BOOST_TEST(!f.shard->try_arm());
    BOOST_TEST(!it().just_before_arming);
    (void)f.shard->poll();
    BOOST_TEST((seen.completed == std::vector<std::uint64_t>{100}));
    BOOST_TEST(f.shard->try_arm());
}

// siw sends in the thread that posts: SIGPIPE would end this test.
BOOST_AUTO_TEST_CASE(a_peer_that_reset_its_connection_to_siw_ends_no_process)
{
    BOOST_REQUIRE(std::signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    it().attributes.vendor_id = 0x626d74;
    it().post_raises_sigpipe = true;
    with_queue_pair(IBV_TRANSPORT_IWARP, [](fixture&, rdma::queue_pair& q, ends&) -> task<void> {
        BOOST_REQUIRE(q.post_send(sends(1)));
        BOOST_TEST(it().doorbells.size() == 1U);
        sigset_t pending;
        BOOST_REQUIRE(::sigpending(&pending) == 0);
        BOOST_TEST(::sigismember(&pending, SIGPIPE) == 0);
        co_return;
    });
    it().post_raises_sigpipe = false;
    it().attributes.vendor_id = 0;
}

BOOST_AUTO_TEST_CASE(a_refused_receive_ends_the_queue_pair_and_all_of_its_batch_is_flushed)
{
    with_queue_pair(IBV_TRANSPORT_IB, [](fixture& f, rdma::queue_pair& q, ends& seen) -> task<void> {
        it().refuses_after_receives = it().receives_taken + 1;
        std::array<verbs::receive_request, 4> batch;
        for (std::size_t i = 0; i < batch.size(); ++i)
            batch[i].id = 200 + i;
        BOOST_TEST(!it().refused_receive);
        BOOST_REQUIRE(q.post_receive(batch));
        BOOST_TEST(it().refused_receive);
        co_await f.wait_until([&seen] { return seen.count != 0; });
        BOOST_TEST(!q.connected());
        BOOST_TEST((seen.completed == std::vector<std::uint64_t>{200, 201, 202, 203}));
        BOOST_TEST(seen.count == 1U);
        BOOST_TEST(seen.last.errno_value() == ENOMEM);
        BOOST_TEST((q.post_receive(batch).error() == std::errc::not_connected));
    });
    it().refuses_after_receives.reset();
    it().refused_receive = false;
}

BOOST_AUTO_TEST_CASE(a_batch_is_one_doorbell)
{
    for (const bool extended : {false, true}) {
        it().makes_extended = extended;
        with_queue_pair(IBV_TRANSPORT_IB, [extended](fixture& f, rdma::queue_pair& q, ends&) -> task<void> {
            BOOST_TEST((f.context->counters().extended == 1U) == extended);
            BOOST_REQUIRE(q.post_send(sends(32)));
            BOOST_REQUIRE(it().doorbells.size() == 1U);
            BOOST_TEST(it().doorbells[0].size() == 32U);
            // No more than these: what is beyond is another.
            BOOST_REQUIRE(q.post_send(sends(33)));
            BOOST_REQUIRE(it().doorbells.size() == 3U);
            BOOST_TEST(it().doorbells[1].size() == 32U);
            BOOST_TEST(it().doorbells[2].size() == 1U);
            BOOST_TEST(f.context->counters().doorbells == 3U);
            co_return;
        });
    }
    it().makes_extended = false;
}

BOOST_AUTO_TEST_CASE(memory_that_is_not_registered_is_given_to_no_device)
{
    with_queue_pair(IBV_TRANSPORT_IB, [](fixture& f, rdma::queue_pair& q, ends& seen) -> task<void> {
        std::vector<std::byte> known(8192);
        const auto region = co_await f.domain->register_memory(std::span(known).first(4096));
        BOOST_REQUIRE_MESSAGE(region, why(region));
        // One good and one that begins in the region and ends behind it.
        const verbs::segment segments[] = {{known.data(), 4096, 0}, {known.data() + 1, 4096, 0}};
        auto batch = sends(2);
        for (std::size_t i = 0; i < 2; ++i)
            batch[i].segments = {&segments[i], 1};
        BOOST_REQUIRE(q.post_send(std::span(batch).first(1)));
        BOOST_TEST(it().doorbells.size() == 1U);
        BOOST_REQUIRE(q.post_send(std::span(batch).last(1)));
        BOOST_TEST(it().doorbells.size() == 1U);
        co_await f.wait_until([&seen] { return seen.count != 0; });
        BOOST_TEST((seen.last == std::errc::bad_address));
        BOOST_TEST((seen.completed == std::vector<std::uint64_t>{100, 101})); // both are told of
    });
}

BOOST_AUTO_TEST_CASE(a_send_queue_takes_as_much_as_was_asked_for)
{
    with_queue_pair(IBV_TRANSPORT_IB, [](fixture& f, rdma::queue_pair& q, ends&) -> task<void> {
        const std::uint32_t depth = verbs::queue_pair_options().send_depth;
        for (std::uint32_t i = 0; i + 2 < depth; i += 2)
            BOOST_REQUIRE(q.post_send(sends(2)));
        BOOST_REQUIRE(depth % 2 == 0);
        // Two places are left.
        const auto all_or_nothing = q.post_send(sends(3));
        BOOST_TEST((!all_or_nothing && all_or_nothing.error() == std::errc::no_buffer_space));
        BOOST_REQUIRE(q.post_send(sends(1)));
        BOOST_REQUIRE(q.post_send(sends(1)));
        const auto one_more = q.post_send(sends(1));
        BOOST_TEST((!one_more && one_more.error() == std::errc::no_buffer_space));
        BOOST_TEST(q.connected());
        completes(it().doorbells.front().front());
        const auto has_room = [&q] { return q.outstanding() < depth; };
        co_await f.wait_until(has_room);
        BOOST_TEST(bool(q.post_send(sends(1))));
    });
}

BOOST_AUTO_TEST_CASE(the_device_tells_of_what_is_signalled_only)
{
    for (const bool extended : {false, true}) {
        it().makes_extended = extended;
        with_queue_pair(IBV_TRANSPORT_IB, [](fixture& f, rdma::queue_pair& q, ends& seen) -> task<void> {
            auto batch = sends(3);
            batch[0].signalled = batch[1].signalled = false;
            BOOST_REQUIRE(q.post_send(batch));
            const auto posted = it().doorbells.back();
            BOOST_REQUIRE(posted.size() == 3U);
            BOOST_TEST(!posted[0].signalled);
            BOOST_TEST(!posted[1].signalled);
            BOOST_TEST(posted[2].signalled);
            completes(posted[2]);
            co_await f.wait_until([&q] { return q.outstanding() == 0; });
            BOOST_TEST(q.outstanding() == 0U);
            BOOST_TEST((seen.completed == std::vector<std::uint64_t>{102}));
        });
    }
    it().makes_extended = false;
}

// siw tells of a Send before the RDMA Read in front of it.
BOOST_AUTO_TEST_CASE(on_iwarp_each_read_is_signalled)
{
    for (const auto transport : {IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP}) {
        const bool iwarp = transport == IBV_TRANSPORT_IWARP;
        with_queue_pair(transport, [iwarp](fixture& f, rdma::queue_pair& q, ends& seen) -> task<void> {
            read_and_sends both(1);
            co_await both.make_sink(*f.domain);
            both.batch[0].signalled = false;
            BOOST_REQUIRE(q.post_send(both.batch));
            const auto posted = it().doorbells.back();
            BOOST_REQUIRE(posted.size() == 2U);
            BOOST_TEST(posted[0].signalled == iwarp);
            BOOST_TEST(posted[1].signalled);
            completes(posted[1]);
            if (iwarp) {
                co_await f.wait_until([] { return it().completions.empty(); });
                co_await f.pass(1ms); // for more than the poll that took it
                BOOST_TEST(seen.completed.empty());
                completes(posted[0]);
            }
            co_await f.wait_until([&q] { return q.outstanding() == 0; });
            BOOST_TEST((seen.completed == std::vector<std::uint64_t>{101}));
        });
    }
}

// Nothing more comes for what stands between the two.
BOOST_AUTO_TEST_CASE(what_a_send_implied_is_over_when_the_read_before_it_is)
{
    with_queue_pair(IBV_TRANSPORT_IWARP, [](fixture& f, rdma::queue_pair& q, ends& seen) -> task<void> {
        read_and_sends all(2);
        co_await all.make_sink(*f.domain);
        all.batch[1].opcode = verbs::opcode::rdma_write;
        all.batch[1].signalled = false;
        BOOST_REQUIRE(q.post_send(all.batch));
        const auto posted = it().doorbells.back();
        BOOST_REQUIRE(posted.size() == 3U);
        BOOST_REQUIRE(!posted[1].signalled);
        completes(posted[2]);
        co_await f.wait_until([] { return it().completions.empty(); });
        co_await f.pass(1ms);
        BOOST_TEST(q.outstanding() == 3U);
        completes(posted[0]);
        co_await f.wait_until([] { return it().completions.empty(); });
        co_await f.pass(1ms);
        BOOST_TEST(q.outstanding() == 0U);
        BOOST_TEST((seen.completed == std::vector<std::uint64_t>{100, 102}));
    });
}

namespace {

// Keeps a thread of a pool until it is let go.
class occupant final : public blocking_pool::job {
public:
    void execute() noexcept override { go.acquire(); }
    void deliver() noexcept override {}
    std::binary_semaphore go{0};
};

} // namespace

// librdmacm changes the queue pair of an id while it gets an event of it, which is on the shard.
BOOST_AUTO_TEST_CASE(a_queue_pair_that_a_pool_thread_destroys_is_no_longer_its_ids)
{
    for (const auto transport : {IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP}) {
        occupant busy;
        with_queue_pair(transport, [&](fixture& f, rdma::queue_pair& q, ends& seen) -> task<void> {
            f.pool.submit(busy, *f.shard);
            const unsigned destroyed = it().destroyed;
            const unsigned states = it().states_set;
            BOOST_REQUIRE(q.id()->qp != nullptr);
            q.end(end_cause::local, error(std::errc::connection_reset, "a test"));
            BOOST_TEST(q.id()->qp == nullptr);
            BOOST_TEST(it().destroyed == destroyed);
            busy.go.release();
            co_await f.wait_until([&seen] { return seen.count != 0; });
            BOOST_TEST(it().destroyed == destroyed + 1);
            // The peer's word for it is an error, but on iWARP, where the kernel says it.
            BOOST_TEST(it().states_set == states + (transport == IBV_TRANSPORT_IB ? 1 : 0));
        });
    }
}

namespace {

template<class T>
void is_of_the_limit(const result<T>& r)
{
    BOOST_REQUIRE(!r);
    BOOST_TEST(r.error().errno_value() == ENOMEM);
    for (const char* part : {"the limit of locked memory is spent", "`ulimit -l`", "LimitMEMLOCK=infinity"})
        BOOST_TEST(r.error().message().find(part) != std::string::npos, why(r));
}

} // namespace

BOOST_AUTO_TEST_CASE(a_refused_registration_is_counted_and_says_what_to_do)
{
    fixture f;
    std::vector<std::byte> memory(4096);
    std::vector<std::byte> more(4096);
    auto body = [&]() -> task<void> {
        const auto failed = [&f] { return f.context->counters().registrations_failed.load(); };
        auto region = co_await f.domain->register_memory(memory);
        BOOST_REQUIRE_MESSAGE(region, why(region));
        // With the device by its first connection, which fails with it.
        const int before = it().regions;
        rdma_cm_id id{};
        id.verbs = &it().verbs();
        id.port_num = 1;
        const verbs::queue_pair_options o;
        it().refused_region = ENOMEM;
        const auto none = co_await f.impl().make_pair(&id, f.impl_part(), o, "peer:1", "peer");
        is_of_the_limit(none);
        BOOST_TEST(failed() == 1U);
        it().refused_region.reset();
        ends seen;
        auto q = co_await f.connected(seen);
        BOOST_TEST(it().regions == before + 1);
        // libsiw may give no errno.
        for (const int code : {ENOMEM, 0}) {
            const std::uint64_t until_now = failed();
            it().refused_region = code;
            const auto refused = co_await f.domain->register_memory(more);
            is_of_the_limit(refused);
            BOOST_TEST(failed() == until_now + 1);
            BOOST_TEST(!f.domain->is_registered(more));
            const auto grant = co_await f.domain->make_grant(memory, verbs::access::remote_read, nullptr);
            is_of_the_limit(grant);
            BOOST_TEST(failed() == until_now + 2);
        }
        // Of what the limit has no part in it says no such thing.
        it().refused_region = EFAULT;
        const auto refused = co_await f.domain->register_memory(more);
        BOOST_REQUIRE(!refused);
        BOOST_TEST(refused.error().errno_value() == EFAULT);
        BOOST_TEST(why(refused).find("limit") == std::string::npos, why(refused));
        BOOST_TEST(failed() == 6U);
        it().refused_region.reset();
        BOOST_TEST(q->connected());
        BOOST_TEST(it().regions == before + 1);
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(buffers_that_cannot_be_registered_are_not_given_out)
{
    const captured log;
    fixture f;
    memory_budget budget(1 << 20);
    buffer_pool buffers(budget, f.shard.get());
    auto body = [&]() -> task<void> {
        ends seen;
        auto q = co_await f.connected(seen);
        const auto added = co_await f.domain->add_pool(buffers);
        BOOST_REQUIRE_MESSAGE(added, why(added));
        it().refused_region = ENOMEM;
        for (unsigned i = 1; i <= 3; ++i) {
            BOOST_TEST(!buffers.try_acquire(4096));
            BOOST_TEST(f.context->counters().registrations_failed == i);
        }
        BOOST_TEST(log.with("raise the limit of locked memory (ulimit -l, LimitMEMLOCK)") == 1U);
        it().refused_region.reset();
        const lease given = buffers.try_acquire(4096);
        BOOST_REQUIRE(bool(given));
        BOOST_TEST(f.domain->is_registered(given.bytes()));
    };
    run_until_complete(*f.shard, body());
}

// The kernel's announcement (removal_watch) doesn't come here, nor does the device's file go.
BOOST_AUTO_TEST_CASE(the_connection_managers_word_alone_ends_all_of_a_device)
{
    for (const bool by_listener : {true, false}) {
        const captured log;
        fixture f;
        auto listens = f.context->listen("192.0.2.1:20049");
        BOOST_REQUIRE_MESSAGE(listens, why(listens));
        auto& where = static_cast<rdma::listener&>(**listens);
        auto body = [&]() -> task<void> {
            ends seen[2];
            auto first = co_await f.connected(seen[0]);
            auto second = co_await f.connected(seen[1]);
            BOOST_REQUIRE(where.bound_to() == &it().verbs());
            BOOST_REQUIRE(it().listening != nullptr);
            const unsigned rejected = it().rejected;
            auto* const id = new rdma_cm_id{};
            id->verbs = &it().verbs();
            cm_event arrives{RDMA_CM_EVENT_CONNECT_REQUEST, 0, id, {}, 1, 1};
            where.on_cm_event(arrives);
            BOOST_TEST(f.context->counters().accepted == 1U);

            cm_event goes{RDMA_CM_EVENT_DEVICE_REMOVAL, 0, nullptr, {}, 0, 0};
            if (by_listener) {
                where.on_cm_event(goes);
            } else {
                first->on_cm_event(goes);
                second->on_cm_event(goes); // is told as well, and is not counted again
            }
            BOOST_TEST(where.bound_to() == nullptr);
            BOOST_TEST(it().listening == nullptr);
            BOOST_TEST(it().rejected == rejected + 1);
            co_await f.wait_until([&seen] { return seen[0].count != 0 && seen[1].count != 0; });
            for (const ends& e : seen)
                BOOST_TEST((e.last == std::errc::no_such_device));

            // Back again, it is another, and kept: going again at once, it must not leave its address to the next.
            const int kept = it().lists;
            it().come_back();
            co_await f.pass(rdma::listener::retry);
            co_await f.wait_until([] { return it().listening != nullptr; });
            BOOST_TEST(where.bound_to() == &it().verbs());
            BOOST_TEST(it().lists == kept + 1);
            ends next_seen;
            auto next = co_await f.connected(next_seen);
            BOOST_TEST(next->connected());
            for (const ends& e : seen)
                BOOST_TEST(e.count == 1U);
            const rdma::stats& counted = f.context->counters();
            BOOST_TEST(counted.ends[std::size_t(end_cause::device_removed)] == 3U);
            BOOST_TEST(counted.device_events[std::size_t(device_event::removed)] == 1U);
            BOOST_TEST(log.with("a device went, and its connections with it") == 1U);
        };
        run_until_complete(*f.shard, body());
        listens->reset();
    }
}

// A receive queue that many share would fill each completion queue if it counted for each of them.
BOOST_AUTO_TEST_CASE(a_shared_receive_queue_counts_once_in_a_completion_queue)
{
    const int first = 0, second = 0; // what tells the queues apart
    const rdma::queue_entries own{7}, a{10, &first, 50}, b{5, &second, 20};
    rdma::completion_queue q;
    q.take(own);
    BOOST_TEST(q.needed_for(a) == 60U);
    q.take(a);
    BOOST_TEST(q.needed_for(a) == 10U);
    q.take(a);
    BOOST_TEST(q.needed_for(b) == 25U);
    q.take(b);
    BOOST_TEST(q.used == 7U + 60U + 10U + 25U);
    q.give_back(a);
    BOOST_TEST(q.used == 7U + 60U + 25U);
    q.give_back(a);
    BOOST_TEST(q.used == 7U + 25U);
    BOOST_TEST(q.needed_for(a) == 60U);
    q.give_back(b);
    q.give_back(own);
    BOOST_TEST(q.used == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
