// SPDX-License-Identifier: Apache-2.0
// A whole daemon: one RPC program on two shards, over TCP and over iWARP, with metrics for Prometheus. SIGTERM drains it.
//
//   service [TCP_PORT IWARP_PORT METRICS_PORT]      7000, 7001 and 9464 unless they are given
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/services/service.hpp>

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>

using namespace verbena;

namespace {

// ADD(unsigned hyper) returns the total of what all callers sent. Both ends share these lines; `add(server, {5})` calls it.
struct add_args {
    std::uint64_t n = 0;
};
struct add_result {
    std::uint64_t total = 0;
};
constexpr rpc::program_definition adder{"adder", 0x20000043, 1}; // RFC 5531 8.4: the number is the user's own
// A repeat is answered from the cache: it adds nothing.
constexpr rpc::procedure<add_args, add_result> add{adder, 1, "ADD", rpc::effect::changes};

// One of them lives on each shard; the total is everybody's.
class adder_program final : public rpc::typed_program {
public:
    explicit adder_program(std::atomic<std::uint64_t>& total) : typed_program(adder)
    {
        on(add, [&total](const add_args& a) { return add_result{total.fetch_add(a.n) + a.n}; });
    }
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
        programs.push_back(std::make_unique<adder_program>(total));
        return programs;
    });
    return s.run();
} catch (const std::exception& e) {
    std::fprintf(stderr, "adder: %s\n", e.what());
    return 1;
}
