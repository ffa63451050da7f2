// SPDX-License-Identifier: Apache-2.0
// Our client's connections to data servers: which there are, and what goes by NFS where there is none.
#include "nfs4_layout_user.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_layout_client_connections_test)

using namespace verbena;
using namespace verbena::test;

BOOST_FIXTURE_TEST_CASE(a_data_server_that_is_full_is_let_rest, layout_world)
{
    service_options.data.connections_of_client = 0;
    end();
    begin();
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    auto f = open(what);
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST(f->last_reason() == by_nfs::no_connection);
    BOOST_TEST(!f->has_layout()); // it is of no use
    BOOST_TEST(holder.layouts->connections().count().refused == 1u);
    write(*f, 0, "x");
    BOOST_TEST(holder.layouts->connections().count().refused == 1u);
    pass(15s);
    BOOST_TEST(read(*f, 0, 1) == "x");
    BOOST_TEST(holder.layouts->connections().count().refused == 2u);
    // The rest is twice as long each time.
    pass(15s);
    BOOST_TEST(read(*f, 0, 1) == "x");
    BOOST_TEST(holder.layouts->connections().count().refused == 2u);
    pass(10s);
    BOOST_TEST(read(*f, 0, 1) == "x");
    BOOST_TEST(holder.layouts->connections().count().refused == 3u);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_data_server_that_has_forgotten_the_client_is_found_again, layout_world)
{
    auto o = quick();
    o.connections.connections = 1;
    join(holder, o);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    auto f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    close(*f);
    for (int i = 0; i < 3; ++i) {
        run([&] { return data->forget_idle(); });
        pass(100ms);
    }
    BOOST_TEST(data->count().connections == 0);
    f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST(counts().read_by_rdma == 20u);
    BOOST_TEST(holder.layouts->connections().count().made == 2u);
    close(*f);
}

// The data server may have started again in between: the server is asked where the device is once more, and then it is no use.
BOOST_FIXTURE_TEST_CASE(a_cookie_that_is_not_known_is_asked_for_once_more, layout_world)
{
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    const deviceid4 device = device_of(what);
    const auto flip = [&](std::vector<std::byte>& message, deviceid4 from, deviceid4 to) {
        for (const std::size_t at : extents_in(message, from))
            std::ranges::copy(to, message.begin() + static_cast<std::ptrdiff_t>(at));
    };
    deviceid4 forged = device;
    forged.back() ^= std::byte(1);
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget))
            flip(reply, device, forged);
    };
    holder.wire.on_call = [&](const sent_compound& call, std::vector<std::byte>& message) {
        if (!call.has(nfs_opnum4::getdeviceinfo))
            return;
        const auto at = std::ranges::search(message, forged);
        BOOST_TEST_REQUIRE(!at.empty());
        std::ranges::copy(device, at.begin());
    };
    holder.wire.sent.clear();
    auto f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST(f->last_reason() == by_nfs::no_connection);
    BOOST_TEST(holder.wire.count(nfs_opnum4::getdeviceinfo) == 2u);
    BOOST_TEST(holder.layouts->connections().count().refused == 2u);
    BOOST_TEST(!f->has_layout());
    close(*f);
}

// It costs nobody time: bytes go by NFS at once, and the file's layout is kept for later.
BOOST_FIXTURE_TEST_CASE(bytes_go_by_nfs_while_the_connection_is_being_made, layout_world)
{
    auto o = quick();
    o.connection_patience = duration::zero();
    join(holder, o);
    const std::string text = letters(5 * block);
    const auto what = make("f", text);
    auto f = open(what);
    loop::conditions slow;
    slow.latency = 3s;
    fabric->set_conditions(slow);
    holder.wire.sent.clear();
    const auto begun = clock.now();
    BOOST_TEST((whole(*f, block) == text));
    for (std::size_t i = 0; i < 5; ++i)
        write(*f, i * block, letters(block, 1));
    BOOST_TEST((clock.now() - begun < 100ms));
    BOOST_TEST(f->last_reason() == by_nfs::connecting);
    BOOST_TEST(counts().read_by_nfs == text.size());
    BOOST_TEST(counts().written_by_nfs == text.size());
    BOOST_TEST(holder.layouts->connections().up() == 0u);
    // One attempt for all of them, and each WRITE is one.
    BOOST_TEST(holder.wire.count(nfs_opnum4::getdeviceinfo) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::write) == 5u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::commit) == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutcommit) == 0u);
    pass(20s, 100ms);
    BOOST_TEST(holder.layouts->connections().up() == 1u);
    fabric->set_conditions({});
    BOOST_TEST(read(*f, 0, block) == letters(block, 1));
    write(*f, 0, "by rdma");
    BOOST_TEST(counts().read_by_rdma == block);
    BOOST_TEST(counts().written_by_rdma == 7u);
    BOOST_TEST(counts().lost == 0u);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_dead_data_server_costs_nothing, layout_world)
{
    auto o = quick();
    o.connection_patience = duration::zero();
    join(holder, o);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    const auto another = make("g", text);
    loop::conditions slow;
    slow.latency = 3s;
    fabric->set_conditions(slow);
    address = "nobody listens there";
    auto f = open(what);
    holder.wire.sent.clear();
    const auto begun = clock.now();
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST((clock.now() - begun < 100ms));
    pass(5s, 100ms); // the attempt is over
    BOOST_TEST(holder.layouts->connections().count().failed == 1u);
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST(!f->has_layout());
    // While it rests, no file asks for a layout, which would be of no use.
    auto g = open(another);
    BOOST_TEST(read(*g, 0, 10) == text.substr(0, 10));
    BOOST_TEST(g->last_reason() == by_nfs::no_connection);
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutreturn) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::getdeviceinfo) == 1u);
    // It is tried again when it has rested.
    fabric->set_conditions({});
    address = "data";
    pass(10s, 100ms);
    BOOST_TEST(read(*g, 0, 10) == text.substr(0, 10));
    pass(1s, 10ms);
    BOOST_TEST(read(*g, 0, 10) == text.substr(0, 10));
    BOOST_TEST(counts().read_by_rdma == 10u);
    close(*f);
    close(*g);
}

// Its devices are others, and those of before say nothing of them.
BOOST_FIXTURE_TEST_CASE(a_device_of_before_a_restart_keeps_nobody_from_the_next_one, layout_world)
{
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    address = "nobody listens there";
    auto f = open(what);
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST(f->last_reason() == by_nfs::no_connection);
    address = "data";
    restart();
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10)); // so that it hears of the restart
    pass(5s);
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST(counts().read_by_rdma == 10u);
    close(*f);
}

namespace {

/// Registers memory when `passes` is set.
class slow_domain final : public verbs::protection_domain {
public:
    slow_domain(std::unique_ptr<verbs::protection_domain> d, event& passes, bool& fails)
        : real(std::move(d)), passes_(passes), fails_(fails)
    {
    }
    task<result<std::unique_ptr<verbs::region>>> register_memory(std::span<std::byte> memory) override
    {
        return real->register_memory(memory);
    }
    task<result<void>> add_pool(buffer_pool& pool) override
    {
        (void)co_await passes_.wait();
        if (std::exchange(fails_, false))
            co_return error(std::errc::not_enough_memory, "memlock");
        is_ready = true;
        co_return co_await real->add_pool(pool);
    }
    bool is_registered(std::span<const std::byte> memory) const noexcept override
    {
        return real->is_registered(memory);
    }
    task<result<void>> make_grants(std::span<verbs::grant_request> batch) override
    {
        return real->make_grants(batch);
    }
    task<void> revoke(std::span<verbs::grant> batch) override { return real->revoke(batch); }
    bool renews_at_once() const noexcept override { return real->renews_at_once(); }
    task<result<std::unique_ptr<verbs::shared_receive_queue>>>
    make_shared_receive_queue(const verbs::shared_receive_queue_options& options) override
    {
        return real->make_shared_receive_queue(options);
    }
    const std::unique_ptr<verbs::protection_domain> real;
    bool is_ready = false;
    std::size_t number = 0; ///< which one it is

private:
    event& passes_;
    bool& fails_;
};

class slow_context final : public verbs::context, private verbs::device {
public:
    explicit slow_context(verbs::context& real) : real_(real), capabilities_(real.query())
    {
        capabilities_.needs_local_keys = true;
    }
    const verbs::capabilities& query() const noexcept override { return capabilities_; }
    reactor& shard() noexcept override { return real_.shard(); }
    verbs::device& device() noexcept override { return *this; }
    result<std::unique_ptr<verbs::protection_domain>> make_domain(std::string_view address) override
    {
        auto made = real_.device().make_domain(address);
        if (!made)
            return made.error();
        auto slow = std::make_unique<slow_domain>(std::move(*made), passes, fails);
        slow->number = ++this->made;
        return std::unique_ptr<verbs::protection_domain>(std::move(slow));
    }
    result<std::unique_ptr<verbs::listener>> listen(std::string_view address) override
    {
        return real_.listen(address);
    }
    task<result<std::unique_ptr<verbs::queue_pair>>> connect(std::string_view address,
                                                             verbs::protection_domain& domain,
                                                             const verbs::connect_options& options,
                                                             std::vector<std::byte>& reply) override
    {
        auto& of = static_cast<slow_domain&>(domain);
        BOOST_TEST(of.is_ready);
        BOOST_TEST(made == of.number);
        return real_.connect(address, *of.real, options, reply);
    }
    event passes;
    bool fails = false;   ///< the first registration
    std::size_t made = 0; ///< domains

private:
    verbs::context& real_;
    verbs::capabilities capabilities_;
};

} // namespace

// Memory is registered once for all of them: who comes second waits for that, and does it itself where it has failed.
BOOST_FIXTURE_TEST_CASE(devices_that_are_connected_to_at_once_register_memory_one_by_one, layout_world)
{
    join(holder);
    const auto what = make("f", letters(1000));
    const deviceid4 device = device_of(what);
    for (const bool fails : {false, true}) {
        slow_context slow(*client_context);
        slow.fails = fails;
        nfs::v4::pnfs::data_connections connections(holder.user.session(), slow, pool, quick().connections);
        deviceid4 unknown = device;
        unknown.back() ^= std::byte(1);
        // The server knows one device: it is asked for that in place of the other one.
        holder.wire.on_call = [&](const sent_compound&, std::vector<std::byte>& message) {
            replace(message, unknown, device);
        };
        std::size_t ended = 0;
        for (const deviceid4& each : {device, unknown})
            tasks.spawn([&, each]() -> task<void> {
                const auto found = co_await connections.get(each, 0);
                // The data server does not know the other one's cookie.
                BOOST_TEST((found.connection != nullptr) == (!fails && each == device));
                ++ended;
            });
        pass(10ms);
        BOOST_TEST(ended == 0u);
        slow.passes.set();
        pass(1s);
        BOOST_TEST(ended == 2u);
        BOOST_TEST(slow.made == 1u + fails);
        holder.wire.on_call = nullptr;
        run([&]() -> task<void> { co_await connections.close(); });
    }
}

// It has rested, and nobody tries it again.
BOOST_FIXTURE_TEST_CASE(a_device_that_no_layout_names_any_more_says_nothing_of_the_others, layout_world)
{
    join(holder);
    const auto what = make("f", letters(1000));
    const deviceid4 device = device_of(what);
    auto o = quick().connections;
    o.rest = 10s;
    o.most_rest = 20s;
    nfs::v4::pnfs::data_connections connections(holder.user.session(), *client_context, pool, o);
    deviceid4 old = device;
    old.back() ^= std::byte(1);
    const auto fails = [&](const deviceid4& id) {
        const auto found = run([&] { return connections.get(id, 0); });
        BOOST_TEST(found.connection == nullptr);
    };
    holder.wire.on_call = [&](const sent_compound&, std::vector<std::byte>& message) {
        replace(message, old, device);
    };
    address = "nobody listens there";
    BOOST_TEST(!connections.all_rest());
    fails(old);
    BOOST_TEST(connections.all_rest());
    pass(30s, 1s);
    BOOST_TEST(!connections.all_rest());
    fails(device);
    BOOST_TEST(connections.all_rest());
    holder.wire.on_call = nullptr;
    run([&]() -> task<void> { co_await connections.close(); });
}

// Whatever an attempt at one more of them ends with.
BOOST_FIXTURE_TEST_CASE(a_connection_that_is_up_serves_where_another_one_can_not_be_made, layout_world)
{
    join(holder);
    const auto what = make("f", letters(1000));
    const deviceid4 device = device_of(what);
    auto o = quick().connections;
    o.connections = 2;
    nfs::v4::pnfs::data_connections connections(holder.user.session(), *client_context, pool, o);
    const auto first = run([&] { return connections.get(device, 0); });
    BOOST_TEST_REQUIRE(first.connection != nullptr);
    address = "nobody listens there";
    const auto second = run([&] { return connections.get(device, 1); });
    BOOST_TEST(second.connection == first.connection);
    BOOST_TEST(!connections.all_rest());
    run([&]() -> task<void> { co_await connections.close(); });
}

BOOST_AUTO_TEST_SUITE_END()
