// SPDX-License-Identifier: Apache-2.0
// Checks a provider of verbs by the conformance kit: docs/howto/conform.md. The provider is verbena's iWARP stack.
//
//   conformance                       both ends in this program
//   conformance server ADDRESS:PORT   for one client
//   conformance client ADDRESS:PORT   the other end, on the same host or another one
#include <verbena/core/task/scope.hpp>
#include <verbena/testing/conformance.hpp>
#include <verbena/testing/conformance/server.hpp>
#include <verbena/testing/conformance/target.hpp>
#include <verbena/transports/iwarp.hpp>

#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <string>

namespace kit = verbena::testing::conformance;

class my_provider final : public kit::subject {
public:
    verbena::reactor& shard() noexcept override { return *shard_; }
    std::unique_ptr<verbena::verbs::context> make_context(const std::string&) override
    {
        return verbena::iwarp::make_context(*shard_); // your provider
    }
    std::string address() const override { return "127.0.0.1:0"; } // where a check listens

private:
    std::unique_ptr<verbena::reactor> shard_ = verbena::reactor::create().value();
};

int check_here()
{
    int failed = 0;
    my_provider mine;
    for (const kit::check& c : kit::checks()) {
        const kit::outcome o = run(c, mine);
        if (o.verdict == kit::verdict::failed)
            std::printf("%s: %s: %s\n", c.group, c.name, o.reason.c_str());
        failed += o.verdict == kit::verdict::failed;
    }
    return failed == 0 ? 0 : 1;
}

// One host.
verbena::task<int> serve(verbena::verbs::context& context, std::string address)
{
    auto listener = context.listen(address).value();
    std::printf("listening at %s\n", listener->local_url().c_str());
    std::fflush(stdout);
    kit::server_options o;
    o.description = "my provider";
    o.complain = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
    kit::server s(context, std::move(o));
    co_await s.run(*listener, true);
    co_return 0;
}

// The other host.
verbena::task<int> check_there(verbena::verbs::context& context, std::string address)
{
    kit::target t(context, address, std::random_device()());
    co_await t.main.prepare();
    co_await t.connect(t.main);
    const std::string peer = co_await t.describe(); // the server ends with this connection
    std::printf("the other end: %s\n", peer.c_str());
    int failed = 0;
    for (const kit::check& c : kit::checks_from_one_end()) {
        const kit::outcome o = co_await run(c, t);
        if (o.verdict == kit::verdict::failed)
            std::printf("%s: %s\n", c.name, o.reason.c_str());
        failed += o.verdict == kit::verdict::failed;
        if (t.main.ended())
            break; // nothing can be asked any more
    }
    co_await t.leave();
    co_return failed == 0 ? 0 : 1;
}

int main(int argc, char** argv)
{
    const std::string role = argc > 1 ? argv[1] : "";
    if (role.empty())
        return check_here();
    if (argc != 3 || (role != "server" && role != "client")) {
        std::fprintf(stderr, "conformance [server|client ADDRESS:PORT]\n");
        return 2;
    }
    try {
        my_provider mine;
        const auto context = mine.make_context(role);
        return run_until_complete(mine.shard(), role == "server" ? serve(*context, argv[2])
                                                                 : check_there(*context, argv[2]));
    } catch (const std::exception& e) { // kit::failure, where there is no connection
        std::fprintf(stderr, "conformance: %s\n", e.what());
        return 1;
    }
}
