// SPDX-License-Identifier: Apache-2.0
// state_lists [LOCKS] [OWNERS]
// What `verbena admin opens` and `locks` cost a shard: LOCKS ranges (1,000,000) of OWNERS owners (100,000), each of a file and a client of
// many, listed as the control plane does it, 100 rows a part. Prints the processor's seconds of all parts together, their number and the longest one,
// without what JSON and the socket cost, for all and for those of one client alone.
#include "../../plugins/nfs/state_commands.hpp"

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/plugins/memfs.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

using namespace verbena;

/// Of this thread, so that a busy machine says nothing about the longest part.
struct thread_time {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<thread_time>;
    static time_point now() noexcept
    {
        timespec t{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
    }
};
using clock_type = thread_time;

namespace {

constexpr std::size_t clients = 1000;
constexpr std::size_t rows_of_a_part = 100;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

void fill(reactor& here, files::state_table& table, files::client_book& book, std::size_t locks,
          std::size_t owners, std::uint32_t via)
{
    std::vector<files::client_id> all;
    for (std::size_t i = 0; i < clients; ++i) {
        const std::string name = "host" + std::to_string(i) + ".example.org";
        all.push_back(*book.add_client(name, 0, {name, "10.0.0." + std::to_string(i % 250), i}));
        if (!run_until_complete(here, book.reclaim_complete(all.back())))
            std::exit(1);
    }
    for (std::size_t i = 0; i < owners; ++i) {
        const std::string file = "file" + std::to_string(i), owner = "owner" + std::to_string(i);
        files::open_request open;
        open.client = all[i % clients];
        open.owner = bytes_of(owner);
        open.file = {files::file_key(via, storage::handle(bytes_of(file))), via};
        open.access = files::share::both;
        open.want = files::delegation_want::none;
        const auto opened = table.open(open);
        if (!opened) {
            std::fprintf(stderr, "open: %s\n", opened.error().message().c_str());
            std::exit(1);
        }
        for (std::size_t n = 0; n < locks / owners; ++n) {
            files::lock_request lock;
            lock.client = open.client;
            lock.file = open.file;
            lock.new_owner = true;
            lock.id = opened->id;
            lock.id.seqid = 0;
            lock.owner = open.owner;
            lock.bytes = {100 * n, 100 * n + 9};
            lock.type = files::lock_type::write;
            if (const auto made = table.lock(lock); !made) {
                std::fprintf(stderr, "lock: %s\n", made.error().message().c_str());
                std::exit(1);
            }
        }
    }
}

void list(const control_command& c, shard& s, const control_arguments& said, const char* of)
{
    std::size_t rows = 0, parts = 0;
    clock_type::duration whole{}, longest{};
    const auto list = c.list(s, said);
    for (bool more = true; more; ++parts) {
        std::vector<control_row> some;
        const auto begun = clock_type::now();
        more = list->next(some, rows_of_a_part);
        const auto took = clock_type::now() - begun;
        whole += took;
        longest = std::max(longest, took);
        rows += some.size();
    }
    std::printf("%s of %s: %zu rows, %zu parts, %.3f s, longest %.3f ms\n", c.name.c_str(), of, rows, parts,
                std::chrono::duration<double>(whole).count(),
                std::chrono::duration<double, std::milli>(longest).count());
}

} // namespace

int main(int argc, char** argv)
{
    const std::size_t locks = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
    const std::size_t owners = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100'000;
    auto reactor = std::move(*reactor::create({}));
    memory_budget budget(std::size_t(64) << 20);
    buffer_pool pool(budget, reactor.get());
    scope tasks(*reactor);
    verbena::shard here(0, *reactor, pool, tasks);
    blocking_pool lane(1);
    const auto backend = std::move(*memfs::open_memfs({}, lane));
    nfs::export_table exports;
    nfs::export_options exported;
    exported.pseudo = "/export";
    exported.backend = backend.get();
    if (!exports.add(exported))
        return 1;
    files::state_options o;
    o.epoch = 1;
    o.limits.clients = o.limits.opens = o.limits.locks = o.limits.lock_states = 4'000'000;
    o.limits.opens_per_client = o.limits.locks_per_client = o.limits.lock_states_per_client = 4'000'000;
    o.limits.owner_names = o.limits.owner_names_per_client = std::size_t(1) << 30;
    files::no_recovery_store forgets;
    verbena::shard* const homes[] = {&here};
    {
        nfs::v4::server_commons commons(exports, {}, homes, forgets, o, 0);
        fill(*reactor, commons.state.table(), commons.state.clients(), locks, owners, exports.all()[0].id);
        const std::vector<control_command> commands = nfs::state_commands(commons, exports);
        for (const control_command& c : commands) {
            list(c, here, {}, "all");
            if (c.arguments.empty())
                continue;
            control_arguments one;
            one.set("of", "client");
            one.set("value", "host7.example.org");
            list(c, here, one, "one client");
        }
    }
    return 0;
}
