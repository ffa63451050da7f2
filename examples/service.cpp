// SPDX-License-Identifier: Apache-2.0
// A whole daemon: one RPC program on two shards, over TCP and over iWARP, with metrics for Prometheus. SIGTERM drains it.
//
//   service [TCP_PORT IWARP_PORT METRICS_PORT]      7000, 7001 and 9464 unless they are given
#include <verbena/services/service.hpp>

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>

using namespace verbena;

namespace {

// Adds up what callers send: ADD(unsigned hyper) returns the total. One of them lives on each shard; the total is everybody's.
class adder final : public rpc::program {
public:
    explicit adder(std::atomic<std::uint64_t>& total) : total_(total) {}
    std::uint32_t number() const noexcept override { return 0x20000043; } // RFC 5531 8.4: the user's own
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "adder"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t p) const noexcept override
    {
        return p == 0 ? "NULL" : p == 1 ? "ADD" : "";
    }
    // A repeat is answered from the cache: it adds nothing.
    bool non_idempotent(std::uint32_t, std::uint32_t p) const noexcept override { return p == 1; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        if (c.header().procedure > 1)
            co_return rpc::outcome::proc_unavail;
        if (c.header().procedure == 1) {
            const std::uint64_t n = c.args().u64();
            if (!c.args().at_end())
                co_return rpc::outcome::garbage_args;
            c.results().u64(total_.fetch_add(n) + n);
        }
        co_return rpc::outcome::success;
    }

private:
    std::atomic<std::uint64_t>& total_;
};

} // namespace

int main(int argc, char** argv)
try {
    const auto at = [&](int i, const char* port) {
        return "127.0.0.1:" + std::string(argc > i ? argv[i] : port);
    };
    std::atomic<std::uint64_t> total{0};
    service s("adder", "1.0");
    s.set("daemon.shards", 2);
    s.set("metrics.listen", at(3, "9464"));
    s.serve("adder", {"tcp://" + at(1, "7000"), "iwarp://" + at(2, "7001")}, [&](shard&) {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<adder>(total));
        return programs;
    });
    return s.run();
} catch (const std::exception& e) {
    std::fprintf(stderr, "adder: %s\n", e.what());
    return 1;
}
