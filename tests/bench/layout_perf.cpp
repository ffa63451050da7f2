// SPDX-License-Identifier: Apache-2.0
// Reads a file of NFS version 4.1 over iwarp, by RDMA under a layout or by READ, one client with one session for both. WHERE is HOST:PORT,
// or tcp:HOST:PORT, by which there are no layouts.
//   layout_perf WHERE FILE make MIB                              makes the file FILE of the export /layouts, unless it is there
//   layout_perf WHERE FILE rdma|nfs|write SIZE DEPTH SECONDS     reads, or writes, of SIZE bytes: random; or, with 1 MiB and more, one after the other
//   layout_perf WHERE FILE get TIMES                             LAYOUTGET of the whole file, and LAYOUTRETURN
// Prints one line of JSON.
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/client/v4/callback_service.hpp>
#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/file.hpp>
#include <verbena/protocols/nfs/client/v4/pnfs/layout_file.hpp>
#include <verbena/protocols/nfs/client/v4/pnfs/layout_user.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/transports/iwarp.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

using namespace verbena;
using clock_type = std::chrono::steady_clock;
namespace v4 = nfs::v4;

namespace {

constexpr std::size_t mib = std::size_t(1) << 20;

[[noreturn]] void fail(const char* what, const std::string& why)
{
    std::fprintf(stderr, "layout_perf: %s: %s\n", what, why.c_str());
    std::exit(1);
}

template<class T>
T take(result<T> r, const char* what)
{
    if (!r)
        fail(what, r.error().message());
    return std::move(*r);
}

void must(const result<void>& r, const char* what)
{
    if (!r)
        fail(what, r.error().message());
}

struct arguments {
    std::string where, file, how;
    std::size_t size = 0, depth = 1;
    double seconds = 1;
};

struct counts {
    std::uint64_t operations = 0, bytes = 0;
    bool is_over = false;
};

class load {
public:
    load(reactor& shard, const arguments& a) : shard_(shard), asked_(a) {}

    task<void> run()
    {
        memory_budget budget(std::size_t(1) << 30);
        buffer_pool buffers(budget, &shard_);
        auto device = iwarp::make_context(shard_, iwarp::options());
        v4::callback_service callbacks(shard_);
        const auto transport = make_transport(*device, buffers, callbacks);
        must(co_await transport->connect(), "connect");
        {
            v4::client client(*transport, nfs::identity::of_process(),
                              "layout_perf " + std::to_string(::getpid()), {1, 1}, &callbacks);
            v4::pnfs::layout_options options;
            options.least = 0;
            options.connection_patience = std::chrono::seconds(10);
            v4::pnfs::layout_user layouts(client, *device, buffers, options);
            must(co_await client.open_session(), "session");
            const auto root = take(co_await client.root(), "root");
            const auto top = take(co_await client.walk(root.handle, "layouts", true), "export");
            must(co_await client.learn_limits(top.handle), "limits");
            if (asked_.how == "make")
                co_await make(client, top.handle, buffers);
            else if (asked_.how == "get")
                co_await get_all(client, layouts, top.handle);
            else
                co_await measure(client, layouts, top.handle, buffers);
            co_await layouts.close();
            co_await client.close();
        }
        co_await transport->close();
    }

private:
    std::unique_ptr<rpc::client_transport> make_transport(verbs::context& device, buffer_pool& buffers,
                                                          v4::callback_service& callbacks)
    {
        constexpr std::string_view tcp = "tcp:";
        if (asked_.where.starts_with(tcp)) {
            rpc::stream_client_options over;
            over.callbacks = &callbacks;
            return take(rpc::make_stream_client(shard_, buffers, asked_.where.substr(tcp.size()), over),
                        "client");
        }
        rpcrdma::requester_options over;
        over.callbacks = &callbacks;
        return rpcrdma::make_requester(device, buffers, asked_.where, over);
    }

    task<void> make(v4::client& client, const v4::known_handle& top, buffer_pool& buffers)
    {
        v4::new_attributes set;
        set.mode = 0644;
        auto f = take(co_await client.create(top, asked_.file, set, v4::open_how::unchecked), "create");
        for (std::size_t at = f->node().attributes.size / mib; at < asked_.size; ++at) {
            lease buffer = buffers.try_acquire(mib);
            std::memset(buffer.data(), int(at & 0xff), mib);
            const std::span<const std::byte> bytes = buffer.bytes().first(mib);
            rpc::payload data(std::move(buffer), bytes);
            must(co_await f->write(at * mib, std::move(data)), "write");
            if (f->uncommitted() > 32 * mib)
                must(co_await f->commit(), "commit");
        }
        must(co_await f->close(), "close");
        std::printf("{\"mib\": %zu}\n", asked_.size);
    }

    task<void> measure(v4::client& client, v4::pnfs::layout_user& layouts, const v4::known_handle& top,
                       buffer_pool& buffers)
    {
        const auto found = take(co_await client.lookup(top, asked_.file), "lookup");
        const bool writes = asked_.how == "write";
        auto opened = take(
            co_await client.open(found, writes ? v4::share4::access_both : v4::share4::access_read), "open");
        size_ = found.attributes.size;
        if (writes) {
            data_ = buffers.try_acquire(asked_.size);
            std::memset(data_.data(), 1, asked_.size);
        }
        if (writes || asked_.how == "nfs") {
            co_await use_all(*opened);
            must(co_await opened->close(), "close");
            data_.reset();
            co_return;
        }
        auto f = layouts.use(std::move(opened));
        co_await use_all(*f);
        if (layouts.counts().read_by_nfs != 0)
            fail("rdma", "some bytes went by NFS: " + std::string(v4::pnfs::to_string(f->last_reason())));
        must(co_await f->close(), "close");
    }

    // For all that the server gives at once: the file is to be no longer than that.
    task<void> get_all(v4::client& client, v4::pnfs::layout_user& layouts, const v4::known_handle& top)
    {
        std::vector<double> took;
        std::size_t extents = 0;
        const auto found = take(co_await client.lookup(top, asked_.file), "lookup");
        for (std::size_t i = 0; i <= asked_.size; ++i) {
            auto opened = take(co_await client.open(found, v4::share4::access_read), "open");
            auto f = layouts.use(std::move(opened));
            const auto before = clock_type::now();
            const auto got = take(co_await f->extents(v4::layoutiomode4::read), "LAYOUTGET");
            if (i != 0) // the first one connects as well
                took.push_back(std::chrono::duration<double, std::micro>(clock_type::now() - before).count());
            extents = got.size();
            must(co_await f->close(), "close");
        }
        std::ranges::nth_element(took, took.begin() + std::ptrdiff_t(took.size() / 2));
        std::printf("{\"extents\": %zu, \"bytes\": %llu, \"layouts\": %llu, \"p50_us\": %.1f}\n", extents,
                    static_cast<unsigned long long>(found.attributes.size),
                    static_cast<unsigned long long>(layouts.counts().got), took[took.size() / 2]);
    }

    template<class File>
    task<void> use_all(File& f)
    {
        scope workers(shard_);
        counts now;
        for (std::size_t i = 0; i < asked_.depth; ++i)
            workers.spawn([this, &f, &now, i] { return work(f, now, i); });
        const auto warm = clock_type::now() + std::chrono::milliseconds(200);
        while (clock_type::now() < warm)
            (void)co_await sleep_for(std::chrono::milliseconds(1));
        std::printf("begin\n");
        std::fflush(stdout);
        const counts before = now;
        const auto begun = clock_type::now();
        const auto end = begun + std::chrono::duration<double>(asked_.seconds);
        while (clock_type::now() < end)
            (void)co_await sleep_for(std::chrono::milliseconds(1));
        const double took = std::chrono::duration<double>(clock_type::now() - begun).count();
        const std::uint64_t operations = now.operations - before.operations, bytes = now.bytes - before.bytes;
        now.is_over = true;
        std::printf("{\"operations\": %llu, \"bytes\": %llu, \"seconds\": %.3f, \"per_second\": %.1f}\n",
                    static_cast<unsigned long long>(operations), static_cast<unsigned long long>(bytes), took,
                    double(operations) / took);
        std::fflush(stdout);
        co_await workers.join();
    }

    template<class File>
    task<void> work(File& f, counts& now, std::size_t number)
    {
        std::minstd_rand random(unsigned(number + 1));
        const std::uint64_t blocks = size_ / asked_.size;
        std::uint64_t next = number * blocks / asked_.depth;
        while (!now.is_over) {
            const std::uint64_t block = asked_.size < mib ? random() % blocks : next++ % blocks;
            if (data_) {
                rpc::payload data(data_.share(), data_.bytes().first(asked_.size));
                must(co_await f.write(block * asked_.size, std::move(data)), "write");
            } else {
                const auto got =
                    take(co_await f.read(block * asked_.size, std::uint32_t(asked_.size)), "read");
                if (got.data.size() != asked_.size)
                    fail("read", "fewer bytes than asked for");
            }
            ++now.operations;
            now.bytes += asked_.size;
        }
    }

    reactor& shard_;
    const arguments asked_;
    std::uint64_t size_ = 0;
    lease data_; // none: reads
};

} // namespace

int main(int argc, char** argv)
{
    if (argc < 5)
        fail("usage", "layout_perf WHERE FILE make MIB | rdma|nfs|write SIZE DEPTH SECONDS | get TIMES");
    arguments a{argv[1], argv[2], argv[3], std::strtoull(argv[4], nullptr, 10)};
    if (argc > 6) {
        a.depth = std::strtoull(argv[5], nullptr, 10);
        a.seconds = std::strtod(argv[6], nullptr);
    }
    if (a.size == 0 || a.depth == 0)
        fail("usage", "sizes and depths are at least 1");
    auto shard = take(reactor::create(reactor_options()), "reactor");
    load l(*shard, a);
    run_until_complete(*shard, l.run());
    return 0;
}
