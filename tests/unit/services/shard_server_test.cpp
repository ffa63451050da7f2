// SPDX-License-Identifier: Apache-2.0
// What the listeners of a protocol have together on a shard.
#include <boost/test/unit_test.hpp>

#include <service/shard_server.hpp>

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(shard_server_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

// iWARP whose domains are counted.
class counting_device final : public iwarp::device {
public:
    const verbs::capabilities& query() const noexcept override { return real_->query(); }
    result<std::unique_ptr<verbs::protection_domain>> make_domain(std::string_view) override
    {
        ++domains;
        return real_->make_domain();
    }
    std::unique_ptr<iwarp::context> make_context(reactor& shard, const iwarp::options& o) override
    {
        asked.push_back(o);
        return std::make_unique<on_shard>(*this, real_->make_context(shard, o));
    }
    unsigned domains = 0;
    std::vector<iwarp::options> asked;

private:
    class on_shard final : public iwarp::context {
    public:
        on_shard(counting_device& d, std::unique_ptr<iwarp::context> real)
            : device_(d), real_(std::move(real))
        {
        }
        const verbs::capabilities& query() const noexcept override { return real_->query(); }
        reactor& shard() noexcept override { return real_->shard(); }
        verbs::device& device() noexcept override { return device_; }
        result<std::unique_ptr<verbs::listener>> listen(std::string_view address) override
        {
            return real_->listen(address);
        }
        task<result<std::unique_ptr<verbs::queue_pair>>> connect(std::string_view address,
                                                                 verbs::protection_domain& domain,
                                                                 const verbs::connect_options& o,
                                                                 std::vector<std::byte>& reply) override
        {
            return real_->connect(address, domain, o, reply);
        }
        const iwarp::stats& counters() const noexcept override { return real_->counters(); }
        result<std::unique_ptr<verbs::listener>> listen_adopted(std::string_view url) override
        {
            return real_->listen_adopted(url);
        }
        void adopt(int fd, verbs::listener& where) noexcept override { real_->adopt(fd, where); }
        void adopt(std::unique_ptr<verbs::arrival> peer, verbs::listener& where) noexcept override
        {
            real_->adopt(std::move(peer), where);
        }

    private:
        counting_device& device_;
        std::unique_ptr<iwarp::context> real_;
    };
    std::unique_ptr<iwarp::device> real_ = iwarp::make_device();
};

// A service of two shards, each with two listeners.
struct two_shards {
    explicit two_shards(std::size_t budget_bytes) : budget(budget_bytes)
    {
        services::server_options o;
        o.name = "test";
        o.shards = 2;
        o.listeners = o.rdma_listeners = 2;
        o.iwarp = &device;
        for (auto& server : servers) {
            shard& here = all.add(budget);
            const auto start = [&]() -> task<void> {
                server.emplace(here, o, std::vector<rpc::program_module*>(), duplicates);
                for (const char* url : {"iwarp://first", "iwarp://second"}) {
                    const auto listens = server->listen_iwarp(url);
                    BOOST_TEST(bool(listens));
                }
                co_return;
            };
            all.run(here, start());
        }
        all.settle();
    }
    ~two_shards()
    {
        for (std::size_t i = 0; i < servers.size(); ++i) {
            const auto end = [&]() -> task<void> {
                co_await servers[i]->shut_down(clock.now() + 1s);
                servers[i].reset();
            };
            all.run(all.at(i), end());
        }
    }

    counting_device device;
    memory_budget budget;
    virtual_clock clock;
    rpc::duplicate_request_cache duplicates{2};
    simulated_shards all{clock, 1};
    std::array<std::optional<services::shard_server>, 2> servers;
};

} // namespace

// So that their buffers are registered once.
BOOST_AUTO_TEST_CASE(listeners_of_a_shard_have_one_domain)
{
    two_shards service(std::size_t(256) << 20);
    BOOST_TEST(service.device.domains == 2u);
}

BOOST_AUTO_TEST_CASE(buffers_for_files_that_peers_reach_are_of_the_budget)
{
    two_shards large(std::size_t(256) << 20);
    for (std::size_t i = 0; i < 2; ++i) {
        BOOST_TEST(large.device.asked.at(i).buffers == &large.all.at(i).buffers());
        BOOST_TEST(large.device.asked.at(i).max_store_bytes == std::size_t(32) << 20);
    }
    two_shards small(std::size_t(4) << 20);
    BOOST_TEST(small.device.asked.at(1).max_store_bytes == std::size_t(1) << 20);
}

BOOST_AUTO_TEST_SUITE_END()
