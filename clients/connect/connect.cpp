// SPDX-License-Identifier: Apache-2.0
#include <verbena/clients/connect.hpp>

#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace verbena::rpc {

// Destroyed from below: what uses something stands behind it.
struct client::parts {
    parts(reactor& r, std::string u, const connect_options& o)
        : shard(r), url(std::move(u)), options(o), budget(o.memory)
    {
    }
    buffer_pool& buffers()
    {
        if (options.buffers != nullptr)
            return *options.buffers;
        return own_buffers ? *own_buffers : own_buffers.emplace(budget, &shard);
    }
    result<verbs::context*> provider(std::string_view scheme);
    result<std::unique_ptr<client_transport>> make(const net::transport_url& where, const std::string& to);

    reactor& shard;
    const std::string url;
    const connect_options options;
    std::string address;
    memory_budget budget;
    std::optional<buffer_pool> own_buffers;
    // Of RDMA devices alone: what the kernel is asked for blocks.
    std::optional<blocking_pool> device_work;
    std::optional<blocking_pool> device_connects;
    std::unique_ptr<verbs::context> own_provider;
    std::unique_ptr<client_transport> transport;
    bool open = false;
};

namespace {

constexpr unsigned device_threads = 2; // work on RDMA devices, and connects by them

// What the last attempt came to, with what helps.
error with_cure(const error& e)
{
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

// Digits are no question for the resolver, which may take long.
task<result<std::vector<net::endpoint>>> addresses_of(const std::string& text)
{
    const auto digits = net::endpoint::parse(text);
    if (digits)
        co_return std::vector<net::endpoint>{*digits};
    if (text.starts_with('[')) // no name stands there, and the resolver would not say what is wrong
        co_return digits.error();
    blocking_pool resolver(1, "the name of a server");
    auto look_up = [&text] { return net::resolve(text); };
    auto found = co_await resolver.run(std::move(look_up));
    const task_context& context = co_await current_context();
    if (context.stop.stop_requested())
        co_return error(std::errc::operation_canceled);
    co_return std::move(found);
}

} // namespace

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
        device_work.emplace(device_threads, "RDMA devices");
        device_connects.emplace(device_threads, "RDMA connects");
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
    return error(std::errc::invalid_argument,
                 "no such transport: write tcp://HOST:PORT, iwarp://HOST:PORT or rdma://HOST:PORT");
}

result<std::unique_ptr<client_transport>> client::parts::make(const net::transport_url& where,
                                                              const std::string& to)
{
    if (where.scheme == "tcp") {
        stream_client_options o;
        o.client = options.client;
        o.callbacks = options.callbacks;
        o.reserved_port = options.reserved_port;
        return make_stream_client(shard, buffers(), to, o);
    }
    rpcrdma::requester_options o;
    o.client = options.client;
    o.callbacks = options.callbacks;
    verbs::context& device = options.provider != nullptr ? *options.provider : *own_provider;
    return rpcrdma::make_requester(device, buffers(), to, o);
}

task<result<client>> connect(std::string url, connect_options o)
{
    const task_context& context = co_await current_context();
    auto made = std::make_unique<client::parts>(*context.shard, std::move(url), o);
    const auto where = net::split_url(made->url);
    if (!where)
        co_return where.error();
    if (where->scheme != "tcp") {
        if (const auto device = made->provider(where->scheme); !device)
            co_return device.error();
    }
    std::vector<std::string> addresses;
    if (where->scheme == "loop") {
        addresses.push_back(where->address);
    } else {
        const auto found = co_await addresses_of(where->address);
        if (!found)
            co_return found.error();
        for (const net::endpoint& e : *found)
            addresses.push_back(e.to_string());
    }
    error last(std::errc::address_not_available, "the name has no address");
    for (std::string& to : addresses) {
        auto transport = made->make(*where, to);
        if (!transport)
            co_return transport.error();
        made->transport = std::move(*transport);
        const auto connected = co_await made->transport->connect();
        if (connected) {
            // Whoever stopped this drops what it yields, and a client can't be dropped open.
            if (context.stop.stop_requested()) {
                co_await made->transport->close();
                co_return error(std::errc::operation_canceled);
            }
            made->address = std::move(to);
            made->open = true;
            client done(std::move(made));
            co_return std::move(done);
        }
        last = with_cure(connected.error());
        co_await made->transport->close();
        made->transport.reset();
        if (context.stop.stop_requested())
            break;
    }
    co_return last;
}

client::client(std::unique_ptr<parts> made) noexcept : parts_(std::move(made)) {}
client::client(client&& other) noexcept = default;

client::~client()
{
    if (parts_ == nullptr || !parts_->open)
        return;
    std::fprintf(stderr,
                 "verbena: the client of %s is destroyed open: co_await its close() before it goes, or let "
                 "rpc::with_client() do that%s\n",
                 parts_->url.c_str(),
                 std::uncaught_exceptions() != 0 ? " (an exception leaves its owner)" : "");
    std::abort();
}

task<result<void>> client::connect() { return parts_->transport->connect(); }
task<result<reply>> client::call(request& r) { return parts_->transport->call(r); }
task<lease> client::acquire(std::size_t size) { return parts_->transport->acquire(size); }
std::string_view client::name() const noexcept { return parts_->transport->name(); }
std::uint64_t client::connections() const noexcept { return parts_->transport->connections(); }
bool client::answered() const noexcept { return parts_->transport->answered(); }
duration client::time_of_a_call() const noexcept { return parts_->transport->time_of_a_call(); }
bool client::serves_calls() const noexcept { return parts_->transport->serves_calls(); }
const std::string& client::url() const noexcept { return parts_->url; }
const std::string& client::address() const noexcept { return parts_->address; }

task<void> client::close()
{
    parts& p = *parts_;
    co_await p.transport->close();
    p.open = false;
}

} // namespace verbena::rpc
