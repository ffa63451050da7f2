// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rtrs/client.hpp>

#include "client_connection.hpp"
#include "client_path.hpp"

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/exception.hpp>

#include <algorithm>
#include <cerrno>
#include <exception>

namespace verbena::rtrs {

std::string_view to_string(path_state s) noexcept
{
    switch (s) {
    case path_state::connecting: return "connecting";
    case path_state::connected: return "connected";
    case path_state::reconnecting: return "reconnecting";
    case path_state::closed: return "closed";
    }
    return "";
}

uuid random_uuid(random_source& random) noexcept
{
    uuid id;
    random.fill(id.bytes);
    return id;
}

struct client::impl : client_shared {
    impl(reactor& s, buffer_pool& b, client_options o, client_stats& st)
        : client_shared(s, b, std::move(o), st)
    {
    }

    task<result<void>> perform(io_operation& o);
    task<result<void>> run(io_operation& o);
    task<result<client_path*>> wait_for_path(io_operation& o);
    client_path* pick() noexcept;
    void begin_anew();
    task<void> path_life(client_path& p);
    client_path* find(std::string_view address) noexcept
    {
        const auto found =
            std::ranges::find_if(paths, [&](const auto& p) { return p->address() == address; });
        return found == paths.end() ? nullptr : found->get();
    }

    std::vector<std::unique_ptr<client_path>> paths;
    std::size_t next = 0; // round robin
};

client::client(reactor& shard, buffer_pool& buffers, client_options o, client_stats& stats)
    : impl_(new impl(shard, buffers, std::move(o), stats))
{
}

client::~client() = default;

buffer_pool& client::buffers() const noexcept { return impl_->buffers; }
std::uint32_t client::max_io_size() const noexcept { return impl_->max_io_size; }
void client::on_restart(std::function<task<void>()> f) { impl_->restarted = std::move(f); }
std::uint32_t client::queue_depth() const noexcept { return impl_->queue_depth; }

std::vector<client::path_view> client::paths() const
{
    std::vector<path_view> all;
    for (const auto& p : impl_->paths)
        all.push_back({p->address(), p->state(), p->in_flight(), p->latency()});
    return all;
}

// A path's life is a task of the client's; who added it waits for the outcome of its first attempt.
task<result<void>> client::add_path(verbs::context& d, std::string address, first_failure then)
{
    if (impl_->closing)
        co_return error(std::errc::operation_canceled, "the client is closed");
    if (!d.query().write_with_immediate)
        co_return error(std::errc::operation_not_supported,
                        "RTRS needs a provider with RDMA Write with immediate");
    if (impl_->find(address) != nullptr)
        co_return error(std::errc::file_exists, "a path to this address is there");
    impl_->paths.push_back(std::make_unique<client_path>(*impl_, d, address, then));
    client_path& p = *impl_->paths.back();
    const std::shared_ptr<first_attempt> attempt = p.attempt();
    try {
        impl_->tasks.spawn(already_made, impl_->path_life(p));
    } catch (...) {
        impl_->paths.pop_back();
        throw;
    }
    const bool over = co_await attempt->over.wait();
    if (over)
        co_return attempt->outcome;
    if (client_path* const still = impl_->find(address); still != nullptr)
        still->close();
    co_return error(std::errc::operation_canceled, "connect a path");
}

task<void> client::impl::path_life(client_path& p)
{
    std::optional<task<void>> running;
    try {
        running.emplace(p.run());
    } catch (...) { // whoever added it waits
        p.attempt()->outcome = error_of(std::current_exception(), "a path could not begin");
        p.attempt()->over.set();
    }
    // Nothing leaves it: requests may be in the path until it ends.
    if (running)
        co_await std::move(*running);
    std::erase_if(paths, [&](const auto& one) { return one.get() == &p; });
    path_moved.set();
}

task<result<void>> client::remove_path(std::string_view address)
{
    if (impl_->find(address) == nullptr)
        co_return error(std::errc::no_such_file_or_directory, "no path to this address");
    const std::string kept(address);
    for (client_path* p = impl_->find(kept); p != nullptr; p = impl_->find(kept)) {
        p->close();
        impl_->path_moved.reset();
        co_await impl_->path_moved.wait_shielded();
    }
    co_return result<void>();
}

client_path* client::impl::pick() noexcept
{
    client_path* best = nullptr;
    for (std::size_t i = 0; i < paths.size(); ++i) {
        client_path& p = *paths[(next + i) % paths.size()];
        if (!p.takes_requests())
            continue;
        const bool better =
            best == nullptr ||
            (options.policy == path_policy::min_inflight && p.in_flight() < best->in_flight()) ||
            (options.policy == path_policy::min_latency && p.latency() < best->latency());
        if (better)
            best = &p;
        if (options.policy == path_policy::round_robin)
            break;
    }
    next = paths.empty() ? 0 : (next + 1) % paths.size();
    return best;
}

task<result<client_path*>> client::impl::wait_for_path(io_operation& o)
{
    for (;;) {
        if (closing)
            co_return error(std::errc::operation_canceled, "the client is closed");
        if (client_path* p = o.service || !restarting ? pick() : nullptr; p != nullptr) {
            o.until.reset();
            co_return p;
        }
        if (!o.until)
            o.until = shard.clock().now() + options.patience;
        path_moved.reset();
        const auto waited = co_await wait_for(path_moved, *o.until);
        if (!waited)
            co_return waited.error();
    }
}

// Sends it until it is answered: what was on its way when a path broke may have been done or not, and is done again, in the same chunk, so
// that the server knows it for what it is.
task<result<void>> client::impl::run(io_operation& o)
{
    for (;;) {
        const auto p = co_await wait_for_path(o);
        if (!p)
            co_return p.error();
        co_await (*p)->issue(o);
        if (o.answered || o.refused)
            co_return o.outcome;
    }
}

// The session has had no chunk left for too long: requests that were given up hold them, and the paths that carried these do not come back. Only the server knows when it
// is done with them, whichever way they came: before that it lets no other session have this one's name.
void client::impl::begin_anew()
{
    session = random_uuid(shard.random());
    stats.abandoned_sessions.add();
    log_limited(stats.paths_logged, log_level::warning, "rtrs", "session abandoned; it begins anew",
                {{"session", options.session},
                 {"chunks", std::uint64_t(held.size())},
                 {"cause", "requests that were given up hold its chunks, as the paths that carried them did "
                           "not come back"},
                 {"cure", "mend or remove those paths"}});
    for (const auto& p : paths)
        p->leave_session();
    release_held();
}

task<result<void>> client::impl::perform(io_operation& o)
{
    if (closing)
        co_return error(std::errc::operation_canceled, "the client is closed");
    if (max_io_size == 0)
        co_return error(std::errc::not_connected, "no path to the server was ever connected");
    if (o.data.size() > max_io_size)
        co_return error(std::errc::message_size, "a request's data are larger than the session takes",
                        o.data.size());
    if (permits.available() == 0 && !o.service)
        stats.permit_waits.add();
    // Those before may all have been cancelled sooner than they could see that.
    if (is_stuck())
        begin_anew();
    const auto taken = co_await take_chunk(o);
    if (!taken) {
        stats.failed.add();
        if (is_stuck())
            begin_anew();
        co_return taken;
    }
    result<void> done;
    try {
        done = co_await run(o);
    } catch (...) {
        give_chunk(o);
        stats.failed.add();
        throw;
    }
    give_chunk(o);
    (o.is_write ? stats.writes : stats.reads).add();
    if (done)
        (o.is_write ? stats.written_bytes : stats.read_bytes).add(o.data.size());
    else
        stats.failed.add();
    co_return done;
}

namespace {

class fixed_header final : public client::header {
public:
    explicit fixed_header(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}
    result<std::size_t> write(std::span<std::byte> into) noexcept override
    {
        if (bytes_.size() > into.size())
            return error(std::errc::message_size, "a service's header is too large", bytes_.size());
        std::ranges::copy(bytes_, into.begin());
        return bytes_.size();
    }

private:
    std::span<const std::byte> bytes_;
};

} // namespace

task<result<void>> client::write(header& user, std::span<const std::byte> data, lane by)
{
    io_operation o;
    o.is_write = true;
    o.user = &user;
    // Only read.
    o.data = {const_cast<std::byte*>(data.data()), data.size()};
    o.service = by == lane::service;
    co_return co_await impl_->perform(o);
}

task<result<void>> client::read(header& user, std::span<std::byte> into, lane by)
{
    io_operation o;
    o.user = &user;
    o.data = into;
    o.service = by == lane::service;
    co_return co_await impl_->perform(o);
}

task<result<void>> client::write(std::span<const std::byte> user, std::span<const std::byte> data, lane by)
{
    fixed_header bytes(user);
    co_return co_await write(bytes, data, by);
}

task<result<void>> client::read(std::span<const std::byte> user, std::span<std::byte> into, lane by)
{
    fixed_header bytes(user);
    co_return co_await read(bytes, into, by);
}

task<void> client::close()
{
    impl_->end();
    for (const auto& p : impl_->paths)
        p->close();
    co_await impl_->tasks.join();
}

} // namespace verbena::rtrs
