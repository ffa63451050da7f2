// SPDX-License-Identifier: Apache-2.0
#include <verbena/clients/connect.hpp>

#include <verbena/clients/server_name.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/own_threads.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/left_behind.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <cerrno>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace verbena::rpc {
namespace {

constexpr const char* no_such_transport =
    "no such transport: write tcp://HOST:PORT, iwarp://HOST:PORT or rdma://HOST:PORT";
constexpr unsigned device_threads = 2; // work on RDMA devices, and connects by them

// How long what a client yielded may hold its buffers when it has gone.
constexpr auto patience_with_leases = std::chrono::seconds(10);
constexpr auto look_again = std::chrono::milliseconds(10);

log_limiter dropped_open_log;

// A time on the shard's clock that passes whatever the stop token says.
class pause final : private timer {
public:
    explicit pause(reactor& shard) { shard.timers().arm(*this, shard.clock().now() + look_again); }
    event over;

private:
    void on_timer() noexcept override { over.set(); }
};

// A client's own watch is heard until the client goes, which may be before its connection ends.
class relayed_watch final : public client_watch {
public:
    client_watch* to = nullptr;
    void on_silence(const error& cause) noexcept override
    {
        if (to != nullptr)
            to->on_silence(cause);
    }
    void on_answer() noexcept override
    {
        if (to != nullptr)
            to->on_answer();
    }
};

struct own_memory {
    own_memory(std::size_t most, reactor& shard) : budget(most), buffers(budget, &shard) {}
    memory_budget budget;
    buffer_pool buffers;
};

const error has_ended(std::errc::operation_canceled, "the client was closed, or its keeper was stopped");

// What the last attempt came to, with what helps.
error with_cure(const error& e)
{
    if (std::string_view(e.context()).starts_with("the server rejected the connection: "))
        return e; // it has its own
    switch (e.errno_value()) {
    case ECONNREFUSED: return error(e.code(), "is the server up, and is this its transport and port?");
    case ECONNRESET:
    case EPROTO:
    case EPROTONOSUPPORT:
        return error(e.code(),
                     "what listens there does not speak this transport: is it the port of another one?");
    case ETIMEDOUT:
        return error(e.code(),
                     "no answer: is the host up, does a firewall drop this, or does something that is not "
                     "of this transport listen there?");
    default: return e;
    }
}

} // namespace

// What a client is made of: its own, and that of the task that ends it, which holds it until then. Destroyed from below: what uses
// something stands behind it.
struct client::parts {
    parts(reactor& r, std::string u, const connect_options& o)
        : shard(r), url(std::move(u)), options(o), memory(std::make_unique<own_memory>(o.memory, r))
    {
        watch.to = o.client.watch;
    }
    buffer_pool& buffers() { return options.buffers != nullptr ? *options.buffers : memory->buffers; }
    client_options calls();
    result<void> check(const result<net::transport_url>& where) const;
    result<verbs::context*> provider(std::string_view scheme);
    result<std::unique_ptr<client_transport>> make(const net::transport_url& where);
    bool is_borrowed() const noexcept
    {
        return options.buffers != nullptr || options.provider != nullptr || options.callbacks != nullptr ||
               options.client.addresses != nullptr;
    }
    bool holds_nothing() const noexcept
    {
        return closed && acquiring == 0 && (memory == nullptr || memory->buffers.outstanding() == 0);
    }
    task<void> close();
    void let_go() noexcept;
    static task<void> keep(std::shared_ptr<parts> p);
    task<lease> none_at_the_end()
    {
        (void)co_await no_more_memory.wait();
        co_return lease();
    }

    class acquirer {
    public:
        explicit acquirer(parts& p) noexcept : parts_(p) { ++parts_.acquiring; }
        acquirer(const acquirer&) = delete;
        ~acquirer() { --parts_.acquiring; }

    private:
        parts& parts_;
    };

    reactor& shard;
    const std::string url;
    std::string address; // of the URL
    const connect_options options;
    relayed_watch watch;
    std::unique_ptr<own_memory> memory;
    std::optional<server_name> name;
    // Of RDMA devices alone: what the kernel is asked for blocks.
    std::optional<blocking_pool> device_work;
    std::optional<blocking_pool> device_connects;
    std::unique_ptr<verbs::context> own_provider;
    std::unique_ptr<client_transport> transport; // nullptr: not yet, or no more

    event gone;           // the client is
    bool open = false;    // its user has it, connected
    bool ending = false;  // its keeper was stopped, or it has gone
    bool closing = false; // close() runs
    bool closed = false;  // it has ended
    event closing_over;   // with or without success
    std::size_t acquiring = 0;
    event no_more_memory; // for who waits for some
};

client_options client::parts::calls()
{
    client_options o = options.client;
    if (o.watch != nullptr)
        o.watch = &watch;
    if (o.addresses == nullptr && name)
        o.addresses = &*name;
    return o;
}

// Idempotent. A second caller waits for the first one's end.
task<void> client::parts::close()
{
    while (!closed) {
        if (closing) {
            co_await closing_over.wait_shielded();
            continue;
        }
        closing = true;
        closing_over.reset();
        std::exception_ptr failure;
        try {
            if (transport)
                co_await transport->close();
        } catch (...) { // there was no memory for it
            failure = std::current_exception();
        }
        closing = false;
        closed = !failure;
        closing_over.set();
        if (failure)
            std::rethrow_exception(failure);
    }
}

// Closed, and nobody holds its buffers.
void client::parts::let_go() noexcept
{
    transport.reset();
    own_provider.reset();
    device_connects.reset();
    device_work.reset();
    try {
        if (name && !name->address().empty())
            address = name->address();
    } catch (...) { // std::bad_alloc: it is told to people alone
    }
    name.reset();
    memory.reset();
}

// Made before there is anything to end, so that a client goes without asking for memory.
task<void> client::parts::keep(std::shared_ptr<parts> p)
{
    (void)co_await p->gone.wait(); // or the keeper's stop
    p->ending = true;
    p->no_more_memory.set();
    while (!p->closed) {
        bool failed = false;
        try {
            co_await p->close();
        } catch (...) {
            failed = true;
        }
        if (failed) {
            pause a_moment(p->shard);
            co_await a_moment.over.wait_shielded();
        }
    }
    const time_point until = p->shard.clock().now() + patience_with_leases;
    while (p->acquiring != 0 || (!p->holds_nothing() && p->shard.clock().now() < until)) {
        pause a_moment(p->shard);
        co_await a_moment.over.wait_shielded();
    }
    if (!p->holds_nothing()) {
        log(log_level::error, "rpc",
            "what a client yielded still holds its buffers, which are not given back: replies and leases go "
            "before their client",
            {{"url", p->url}});
        (void)p->memory.release();
    }
    p->let_go();
}

result<void> client::parts::check(const result<net::transport_url>& where) const
{
    if (!where)
        return where.error();
    if (is_borrowed() && options.keeper == nullptr)
        return error(std::errc::invalid_argument, "connect_options lend the client buffers, a provider, "
                                                  "callbacks or addresses, and no keeper: name "
                                                  "the scope that ends it and is joined before they go");
    if (where->scheme == "loop")
        return {};
    // Before the address: whose scheme is misspelt may well have left out a port that he takes for the usual one.
    if (options.provider == nullptr && where->scheme != "tcp" && where->scheme != "iwarp" &&
        where->scheme != "rdma")
        return error(std::errc::invalid_argument, no_such_transport);
    // Digits are no question for the resolver, and of what stands in brackets it would not say what is wrong.
    const auto digits = net::endpoint::parse(where->address);
    if (!digits && where->address.starts_with('['))
        return digits.error();
    if (const auto parts = net::split_host_port(where->address); !parts)
        return parts.error();
    return {};
}

result<verbs::context*> client::parts::provider(std::string_view scheme)
{
    if (options.provider != nullptr) {
        if (scheme == options.provider->query().provider)
            return options.provider;
        return error(std::errc::invalid_argument,
                     "the URL's scheme is not that of connect_options::provider");
    }
    if (scheme == "iwarp") {
        own_provider = iwarp::make_context(shard);
        return own_provider.get();
    }
    if (scheme == "rdma") {
#ifdef VERBENA_HAS_RDMA
        const auto threads = own_threads_of(shard);
        if (!threads)
            return threads.error();
        device_work.emplace((*threads)->crew, device_threads, "RDMA devices");
        device_connects.emplace((*threads)->crew, device_threads, "RDMA connects");
        auto made = rdma::make_context(shard, {*device_work, *device_connects});
        if (!made)
            return made.error();
        own_provider = std::move(*made);
        return own_provider.get();
#else
        return error(
            std::errc::function_not_supported,
            "this build has no RDMA devices (libibverbs and librdmacm were missing); iwarp:// needs none");
#endif
    }
    if (scheme == "loop")
        return error(std::errc::invalid_argument,
                     "loop:// is within one process: name the host's device in connect_options::provider");
    return error(std::errc::invalid_argument, no_such_transport);
}

result<std::unique_ptr<client_transport>> client::parts::make(const net::transport_url& where)
{
    address = where.address;
    if (where.scheme != "loop" && options.client.addresses == nullptr)
        name.emplace(shard, address, options.client.connect_timeout, options.look_up);
    if (where.scheme == "tcp") {
        stream_client_options o;
        o.client = calls();
        o.callbacks = options.callbacks;
        o.reserved_port = options.reserved_port;
        return make_stream_client(shard, buffers(), "0.0.0.0:0", o); // stands for those that are found
    }
    const auto device = provider(where.scheme);
    if (!device)
        return device.error();
    rpcrdma::requester_options o;
    o.client = calls();
    o.callbacks = options.callbacks;
    return rpcrdma::make_requester(**device, buffers(), address, o);
}

task<result<client>> client::made_of(std::shared_ptr<parts> p)
{
    const task_context& context = co_await current_context();
    client made(p); // which lets the parts go wherever this ends
    const auto where = net::split_url(p->url);
    if (const auto good = p->check(where); !good)
        co_return good.error();
    scope& keeper = p->options.keeper != nullptr ? *p->options.keeper : left_behind(p->shard);
    keeper.spawn(already_made, parts::keep(p));
    if (p->ending) // it was stopped before
        co_return error(std::errc::operation_canceled);
    auto transport = p->make(*where);
    if (!transport)
        co_return transport.error();
    p->transport = std::move(*transport);
    auto connected = co_await p->transport->connect();
    // Whoever stopped this drops what it yields.
    if (context.stop.stop_requested() || p->ending)
        connected = error(std::errc::operation_canceled);
    if (!connected) {
        co_await p->close();
        const bool was_looked_up = !p->name || p->name->found();
        co_return was_looked_up ? with_cure(connected.error()) : connected.error();
    }
    p->open = true;
    co_return std::move(made);
}

task<result<client>> connect(std::string url, connect_options o)
{
    const task_context& context = co_await current_context();
    std::exception_ptr failure;
    try {
        auto made = co_await client::made_of(
            std::make_shared<client::parts>(*context.shard, std::move(url), std::move(o)));
        co_return std::move(made);
    } catch (...) {
        failure = std::current_exception();
    }
    co_return error_of(failure, "a client could not be made");
}

client::client(std::shared_ptr<parts> made) noexcept : parts_(std::move(made)) {}
client::client(client&& other) noexcept = default;

client::~client()
{
    if (parts_ == nullptr)
        return;
    parts& p = *parts_;
    p.watch.to = nullptr;
    if (p.open && !p.closed && !p.ending)
        log_limited(
            dropped_open_log, log_level::warning, "rpc",
            "a client was dropped open: its calls are cancelled, and the shard closes it; co_await its "
            "close() before it goes, or let rpc::with_client() do that",
            {{"url", p.url}});
    if (p.holds_nothing() && !p.ending)
        p.let_go(); // so that what was lent is free at once
    p.gone.set();
}

task<result<void>> client::connect() { return connect_of(parts_); }

// The transport may go between the making of a task and its beginning.
task<result<void>> client::connect_of(std::shared_ptr<parts> p)
{
    if (!p->transport)
        co_return has_ended;
    co_return co_await p->transport->connect();
}

task<result<reply>> client::call(request& r) { return call_of(parts_, r); }

task<result<reply>> client::call_of(std::shared_ptr<parts> p, request& r)
{
    if (!p->transport)
        co_return has_ended;
    auto outcome = co_await p->transport->call(r);
    co_return std::move(outcome);
}

task<lease> client::acquire(std::size_t size) { return acquire_of(parts_, size); }

task<lease> client::acquire_of(std::shared_ptr<parts> p, std::size_t size)
{
    if (!p->transport || p->ending)
        co_return lease();
    const parts::acquirer here(*p);
    lease at_once = co_await p->buffers().acquire(size, std::chrono::nanoseconds::zero());
    if (at_once)
        co_return std::move(at_once);
    auto first = co_await when_any(p->transport->acquire(size), p->none_at_the_end());
    co_return std::move(first.value);
}

std::string_view client::name() const noexcept
{
    return parts_->transport ? parts_->transport->name() : std::string_view();
}
std::uint64_t client::connections() const noexcept
{
    return parts_->transport ? parts_->transport->connections() : 0;
}
bool client::answered() const noexcept { return parts_->transport && parts_->transport->answered(); }
duration client::time_of_a_call() const noexcept
{
    return parts_->transport ? parts_->transport->time_of_a_call() : duration::zero();
}
bool client::serves_calls() const noexcept { return parts_->transport && parts_->transport->serves_calls(); }
const std::string& client::url() const noexcept { return parts_->url; }

const std::string& client::address() const noexcept
{
    return parts_->name && !parts_->name->address().empty() ? parts_->name->address() : parts_->address;
}

task<void> client::close()
{
    const std::shared_ptr<parts> p = parts_;
    co_await p->close();
}

} // namespace verbena::rpc
