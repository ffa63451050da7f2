// SPDX-License-Identifier: Apache-2.0
// A plugin of nbdkit: a device of an RNBD server as an NBD export, for whatever speaks NBD (qemu, nbd-client, nbdcopy, fio,
// libguestfs).
//
//   nbdkit verbena url=rnbd+iwarp://HOST/DEVICE [path=rnbd+iwarp://HOST2:1234]... [session=NAME] [connections=N]
//
// nbdkit calls from many threads; the session lives on one shard of ours, which is started behind nbdkit's fork.
#include "../client/block_session.hpp"
#include "losses_told.hpp"
#include "nbd_errno.hpp"

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

namespace {

using namespace verbena;

cli::block_place place; // as configured
std::unique_ptr<runtime> shards;
blocking_pool* device_lane = nullptr; // of `shards`
// On the shard.
std::unique_ptr<verbs::context> by_iwarp;
std::unique_ptr<verbs::context> by_device;
std::unique_ptr<cli::block_session> session;
nbd::losses_told losses; // of the device
unsigned clients = 0;    // that have it open

using nbd_client = nbd::losses_told::client; // on the shard

result<verbs::context*> provider(reactor& shard, std::string_view scheme, blocking_pool& lane)
{
    if (scheme != "rdma") {
        if (!by_iwarp)
            by_iwarp = iwarp::make_context(shard);
        return by_iwarp.get();
    }
#ifdef VERBENA_HAS_RDMA
    if (!by_device) {
        auto made = rdma::make_context(shard, {lane, lane}, {});
        if (!made)
            return made.error();
        by_device = std::move(*made);
    }
    return by_device.get();
#else
    (void)lane;
    return error(std::errc::function_not_supported,
                 "this build has no RDMA devices; rnbd+iwarp:// needs none");
#endif
}

// What `f` on the shard yields; false with errno and a message for nbdkit.
template<class F>
int on_shard(const char* what, F f)
{
    const result<void> done = shards->run(0, f);
    if (done)
        return 0;
    nbdkit_error("%s: %s", what, done.error().message().c_str());
    nbdkit_set_error(nbd::errno_of(done.error()));
    return -1;
}

int config(const char* key, const char* value)
{
    const std::string_view name = key;
    if (name == "url") {
        if (!place.url.empty()) {
            nbdkit_error("url= stands twice; path= names another way to the same server");
            return -1;
        }
        place.url = value;
    } else if (name == "path") {
        place.paths.emplace_back(value);
    } else if (name == "session") {
        place.session = value;
    } else if (name == "connections") {
        const std::string_view text = value;
        const auto [end, failed] = std::from_chars(text.begin(), text.end(), place.connections);
        if (failed != std::errc() || end != text.end() || place.connections < 1 || place.connections > 64) {
            nbdkit_error("connections=%s: a number from 1 to 64", value);
            return -1;
        }
    } else {
        nbdkit_error("no parameter %s: there are url, path, session and connections", key);
        return -1;
    }
    return 0;
}

int config_complete()
{
    if (place.url.empty()) {
        nbdkit_error("url=rnbd+iwarp://HOST/DEVICE is missing");
        return -1;
    }
    place.to_read = "start nbdkit with -r to export it read-only";
    if (const std::string wrong = cli::check(place); !wrong.empty()) {
        nbdkit_error("%s", wrong.c_str());
        return -1;
    }
    return 0;
}

int after_fork()
{
    // nbdkit's threads and the shard wait for each other, and for the NBD client, on the same processors: what the shard spins
    // away is missing there.
    runtime_options o;
    o.reactor.policy = wait_policy::event;
    auto made = runtime::start(o);
    if (!made) {
        nbdkit_error("cannot start: %s", made.error().message().c_str());
        return -1;
    }
    shards = std::move(*made);
    const result<blocking_pool*> lane = shards->add_lane("RDMA devices");
    if (!lane) {
        nbdkit_error("cannot start: %s", lane.error().message().c_str());
        return -1;
    }
    device_lane = *lane;
    return 0;
}

task<void> disconnect()
{
    if (session)
        co_await session->close();
    session.reset();
}

void cleanup()
{
    if (!shards)
        return;
    const auto end = [](shard&) -> task<result<void>> {
        co_await disconnect();
        by_iwarp.reset();
        by_device.reset();
        co_return result<void>();
    };
    (void)shards->run(0, end);
    shards.reset();
}

// A session, if there is none yet. nbdkit says what went wrong to the NBD client that comes, but not to the command of its --run, which
// would wait for ever: so not in after_fork.
task<cli::failure> connect(shard& s)
{
    if (session)
        co_return cli::failure();
    session = std::make_unique<cli::block_session>(
        s.reactor(), s.buffers(),
        [&r = s.reactor()](std::string_view scheme) { return provider(r, scheme, *device_lane); });
    cli::failure failed = co_await session->connect(place);
    if (failed.failed())
        co_await disconnect(); // and the next client tries anew
    else
        for (const cli::failure& f : session->unreached())
            nbdkit_error("%s\n  it goes on being tried, and requests go by the other paths",
                         f.text().c_str());
    co_return failed;
}

// A device that could not be opened again, since another client of the server had it, may have been written by that
// one. So whoever had it open here does not get it back: only a client that comes when those have gone.
task<cli::failure> use_device()
{
    if (session->device()->usable())
        co_return cli::failure();
    if (clients == 0)
        co_return co_await session->begin_anew();
    co_return cli::failure("the device could not be opened again when the server was back",
                           error(std::errc::device_or_resource_busy),
                           "end the clients that have it open here, and come again");
}

// One device for all NBD clients: a server gives it to one writer.
void* open(int readonly)
{
    std::unique_ptr<nbd_client> client;
    const auto open_device = [readonly, &client](shard& s) -> task<cli::failure> {
        cli::failure failed = co_await connect(s);
        if (failed.failed())
            co_return failed;
        if (session->device() == nullptr) {
            failed = co_await session->open(readonly != 0 ? rnbd::access_mode::read_only
                                                          : rnbd::access_mode::read_write);
            if (failed.failed())
                co_await disconnect(); // the server has other use for what a session takes there
        } else {
            failed = co_await use_device(); // the session stays: it knows what has not been flushed
        }
        if (failed.failed())
            co_return failed;
        client = std::make_unique<nbd_client>(losses);
        ++clients;
        co_return failed;
    };
    // By one after the other, though clients may come at once.
    static std::mutex opening;
    const std::lock_guard lock(opening);
    const cli::failure failed = shards->run(0, open_device);
    if (!failed.failed())
        return client.release();
    nbdkit_error("%s", failed.text().c_str());
    return nullptr;
}

// Who has never flushed, as nbdcopy without --flush, has heard of no loss and takes its copy for whole. The next who flushes is told; the
// log tells of each that has written.
void close(void* client)
{
    const bool unheard = shards->call(0, [client](shard&) {
        auto* const leaving = static_cast<nbd_client*>(client);
        const std::uint64_t lost = session->device() != nullptr ? session->device()->losses() : 0;
        const bool may_have_lost = leaving->may_have_lost(lost);
        delete leaving;
        --clients;
        return may_have_lost;
    });
    static log_limiter limiter;
    std::uint64_t suppressed = 0;
    if (unheard && limiter.admit(std::chrono::steady_clock::now(), suppressed))
        nbdkit_error(
            "a client left without a flush after the server began anew: what it wrote may be lost; write it "
            "again, as by nbdcopy --flush");
}

// They may change when the device is opened again.
storage::block_properties properties()
{
    return shards->call(0, [](shard&) { return session->device()->properties(); });
}

int64_t get_size(void*) { return static_cast<int64_t>(properties().size); }

int block_size(void*, uint32_t* least, uint32_t* preferred, uint32_t* most)
{
    const storage::block_properties p = properties();
    *least = p.block_size;
    *preferred = std::max<uint32_t>(p.physical_block_size, 4096);
    *most = 32 << 20;
    return 0;
}

int can_write(void*) { return properties().read_only ? 0 : 1; }
int can_flush(void*) { return 1; }
int can_fua(void*) { return NBDKIT_FUA_NATIVE; }
int can_trim(void*) { return properties().discard_granularity != 0 ? 1 : 0; }
int can_zero(void*) { return properties().write_zeroes ? 1 : 0; }
int can_multi_conn(void*) { return 1; }

int pread(void*, void* buffer, uint32_t count, uint64_t offset, uint32_t)
{
    return on_shard("read", [=](shard&) {
        return session->device()->read(offset, {static_cast<std::byte*>(buffer), count});
    });
}

// FUA makes a change safe by itself.
void note_change(void* client, uint32_t flags)
{
    if ((flags & NBDKIT_FLAG_FUA) == 0)
        static_cast<nbd_client*>(client)->changes(session->device()->losses());
}

int pwrite(void* client, const void* buffer, uint32_t count, uint64_t offset, uint32_t flags)
{
    return on_shard("write", [=](shard&) {
        note_change(client, flags);
        return session->device()->write(offset, {static_cast<const std::byte*>(buffer), count},
                                        (flags & NBDKIT_FLAG_FUA) != 0);
    });
}

// Each client is told of each loss, as each has written something, perhaps.
task<result<void>> flush_for(nbd_client& client)
{
    rnbd::device& d = *session->device();
    const auto changes = client.flushes();
    const auto done = co_await d.flush(client.told());
    if (!done && rnbd::is_loss(done.error()))
        client.tell(d.losses());
    else if (!done)
        client.changes_back(changes);
    co_return done;
}

int flush(void* client, uint32_t)
{
    return on_shard("flush", [=](shard&) { return flush_for(*static_cast<nbd_client*>(client)); });
}

// NBD's trim and write-zeroes may carry FUA, so a flush follows. It fails only for a loss during this call; an earlier one is kept for the
// client's own flush, as clients may ignore a failed trim.
task<result<void>> flushed(task<result<void>> change, bool fua)
{
    rnbd::device& d = *session->device();
    const std::uint64_t before = d.losses();
    auto done = co_await change;
    if (done && fua)
        done = co_await d.flush(before);
    co_return done;
}

int trim(void* client, uint32_t count, uint64_t offset, uint32_t flags)
{
    return on_shard("trim", [=](shard&) {
        note_change(client, flags);
        return flushed(session->device()->discard(offset, count), (flags & NBDKIT_FLAG_FUA) != 0);
    });
}

int zero(void* client, uint32_t count, uint64_t offset, uint32_t flags)
{
    return on_shard("write zeroes", [=](shard&) {
        note_change(client, flags);
        const bool keep = (flags & NBDKIT_FLAG_MAY_TRIM) == 0;
        return flushed(session->device()->write_zeroes(offset, count, keep), (flags & NBDKIT_FLAG_FUA) != 0);
    });
}

nbdkit_plugin make_plugin()
{
    nbdkit_plugin p = {};
    p.name = "verbena";
    p.longname = "RNBD devices over RDMA or user-space iWARP";
    p.version = VERBENA_VERSION;
    p.description = "Exports a device of an RNBD server (verbenad block, or the kernel's).";
    p.config = config;
    p.config_complete = config_complete;
    p.config_help =
        "url=<URL>          (required) rnbd+iwarp://HOST[:1234]/DEVICE or rnbd+rdma://HOST/DEVICE\n"
        "path=<URL>         another way to the same server; repeated for more\n"
        "session=<NAME>     name of the session (default: host and process)\n"
        "connections=<N>    of each path, for requests (default: 1)";
    p.magic_config_key = "url";
    p.after_fork = after_fork;
    p.cleanup = cleanup;
    p.open = open;
    p.close = close;
    p.get_size = get_size;
    p.block_size = block_size;
    p.can_write = can_write;
    p.can_flush = can_flush;
    p.can_fua = can_fua;
    p.can_trim = can_trim;
    p.can_zero = can_zero;
    p.can_multi_conn = can_multi_conn;
    p.pread = pread;
    p.pwrite = pwrite;
    p.flush = flush;
    p.trim = trim;
    p.zero = zero;
    p.errno_is_preserved = 0;
    return p;
}

nbdkit_plugin plugin = make_plugin();

} // namespace

NBDKIT_REGISTER_PLUGIN(plugin)
