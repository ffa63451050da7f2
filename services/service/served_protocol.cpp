// SPDX-License-Identifier: Apache-2.0
#include "served_protocol.hpp"
#include "rdma_acceptor.hpp"
#include "shard_server.hpp"
#include "side_by_side.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/transports/stream.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <future>
#include <sys/resource.h>

namespace verbena::services {

namespace {

// A connection on its way to the shard that will serve it.
class handover final : public remote_message {
public:
    handover(shard_server& to, net::unique_fd socket, const net::endpoint& peer) noexcept
        : to_(to), socket_(std::move(socket)), peer_(peer)
    {
    }
    void serve(std::optional<std::size_t> iwarp_listener) noexcept
    {
        if (iwarp_listener)
            to_.adopt_iwarp(std::move(socket_), *iwarp_listener);
        else
            to_.adopt_tcp(std::move(socket_), peer_);
    }
    void send(std::optional<std::size_t> iwarp_listener) noexcept
    {
        iwarp_listener_ = iwarp_listener;
        to_.where().post_remote(*this);
    }
    void deliver() noexcept override
    {
        const std::unique_ptr<handover> self(this);
        serve(iwarp_listener_);
    }

private:
    shard_server& to_;
    net::unique_fd socket_;
    net::endpoint peer_;
    std::optional<std::size_t> iwarp_listener_;
};

// Likewise, when its connect request has been read.
class arrival_handover final : public remote_message {
public:
    using adopt = void (shard_server::*)(std::unique_ptr<verbs::arrival> peer, std::size_t listener);

    static void send(shard_server& to, adopt how, std::unique_ptr<verbs::arrival> peer, std::size_t listener)
    {
        to.where().post_remote(*new arrival_handover(to, how, std::move(peer), listener));
    }
    void deliver() noexcept override
    {
        const std::unique_ptr<arrival_handover> self(this);
        (to_.*how_)(std::move(peer_), listener_);
    }

private:
    arrival_handover(shard_server& to, adopt how, std::unique_ptr<verbs::arrival> peer,
                     std::size_t listener) noexcept
        : to_(to), how_(how), peer_(std::move(peer)), listener_(listener)
    {
    }
    shard_server& to_;
    adopt how_;
    std::unique_ptr<verbs::arrival> peer_;
    std::size_t listener_;
};

// Of the process's descriptors posixfs may keep half (posixfs/descriptor_cache.hpp); an eighth is for what opens one and closes it again,
// for rings, events and listeners.
std::size_t most_connections()
{
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return SIZE_MAX;
    const auto all = static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur, std::size_t(1) << 30));
    return std::max<std::size_t>(all / 2 - all / 8, 8);
}

device_choice common_device_of(const std::vector<planned_listener>& listeners)
{
    std::vector<listen_url> urls;
    urls.reserve(listeners.size());
    for (const planned_listener& l : listeners)
        urls.push_back(l.url);
    return common_device(urls);
}

} // namespace

struct server::impl {
    impl(runtime& r, options own, std::vector<planned_listener> all)
        : rt(r), listeners(std::move(all)), service_servers(own.servers)
    {
        shard_options.name = std::move(own.name);
        shard_options.shards = r.size();
        shard_options.listeners = own.listeners;
        shard_options.rdma_listeners = own.rdma_listeners;
        shard_options.peers = own.peers;
        shard_options.connections = own.connections;
        shard_options.iwarp = own.iwarp;
#ifdef VERBENA_HAS_RDMA
        shard_options.rdma = own.rdma;
#endif
        shard_options.most_connections = most_connections();
        shard_options.iwarp_crc = own.iwarp_crc;
        shard_options.read_limit = own.read_limit;
        shard_options.device = common_device_of(listeners);
    }

    struct acceptor {
        std::unique_ptr<stream::listener> socket;
        std::optional<std::size_t> iwarp_listener;
#ifdef VERBENA_HAS_RDMA
        std::unique_ptr<rdma_acceptor> rdma; // in place of a socket
#endif
        std::size_t next = 0; // shard 0's
    };

    template<class Make>
    void make_servers(Make make);
    std::optional<std::size_t> shard_of(const verbs::arrival& peer) const noexcept;
    void route_iwarp(std::unique_ptr<verbs::arrival>& peer, std::size_t at, std::size_t listener);
    verbs::side_connections* others_on(verbs::device& device, std::string_view transport,
                                       const std::vector<rpc::program_module*>& programs);
    void ask_for_others(const std::vector<rpc::program_module*>& programs);
    void open(metric_registry& registry);
    void listen(const listen_url& url, const net::endpoint& where);
    net::endpoint listen_rdma(const listen_url& url, const net::endpoint& where, acceptor& a);
    void hand_over(acceptor& from, net::unique_fd socket, const net::endpoint& peer);
    void expose(metric_registry& registry);
    void take_down(std::chrono::milliseconds limit);

    runtime& rt;
    std::vector<planned_listener> listeners;
    std::size_t service_servers;
    server_options shard_options;
    const verbs::protocol_module* verbs_protocol = nullptr; // in place of programs
    std::unique_ptr<rpc::duplicate_request_cache> duplicates;
    // Of lane_rights::daemon: the kernel refuses RDMA files to a thread that ever took a caller's rights. The runtime's.
    blocking_pool* device_lane = nullptr;
    verbs::side_connections* iwarp_others = nullptr; // who has connections that are not for RPC
    verbs::side_connections* rdma_others = nullptr;
    std::vector<std::unique_ptr<shard_server>> servers;
    std::vector<std::unique_ptr<acceptor>> acceptors;
    metric_registrations metrics;
    std::vector<listen_place> places;
    bool running = true;
};

template<class Make>
void server::impl::make_servers(Make make)
{
    duplicates = std::make_unique<rpc::duplicate_request_cache>(
        rt.size(), rpc::duplicate_request_options::within(rt.budget().limit() / 4 / service_servers));
    for (std::size_t i = 0; i < rt.size(); ++i)
        servers.push_back(rt.call(i, make));
}

// Where it has to go, if that matters.
std::optional<std::size_t> server::impl::shard_of(const verbs::arrival& peer) const noexcept
{
    if (verbs_protocol == nullptr)
        return std::nullopt;
    const auto chosen = verbs_protocol->shard_of(peer.private_data(), servers.size());
    return chosen ? std::optional(*chosen % servers.size()) : std::nullopt;
}

void server::impl::route_iwarp(std::unique_ptr<verbs::arrival>& peer, std::size_t at, std::size_t listener)
{
    const auto chosen = shard_of(*peer);
    if (chosen && *chosen != at)
        arrival_handover::send(*servers[*chosen], &shard_server::adopt_iwarp, std::move(peer), listener);
}

void server::impl::hand_over(acceptor& from, net::unique_fd socket, const net::endpoint& peer)
{
    const std::size_t chosen = from.next;
    from.next = (from.next + 1) % servers.size();
    auto message = std::make_unique<handover>(*servers[chosen], std::move(socket), peer);
    if (chosen == 0)
        message->serve(from.iwarp_listener);
    else
        message.release()->send(from.iwarp_listener);
}

#ifdef VERBENA_HAS_RDMA
net::endpoint server::impl::listen_rdma(const listen_url& url, const net::endpoint& where, acceptor& a)
{
    const auto fail = [&](const error& e) {
        throw_start_failure(e, "listen " + url.text() + ": " + e.message());
    };
    if (device_lane == nullptr) {
        const result<blocking_pool*> lane = rt.add_lane("RDMA devices of " + shard_options.name);
        if (!lane)
            fail(lane.error());
        device_lane = *lane;
    }
    std::size_t number = 0;
    for (std::size_t i = 0; i < servers.size(); ++i) {
        const auto made = rt.call(
            i, [&](shard&) { return servers[i]->listen_rdma(url.text(), *device_lane, rdma_others); });
        if (!made)
            fail(made.error());
        number = *made;
    }
    const result<void> opened = rt.call(0, [&](shard& s) -> result<void> {
        auto made = rdma_acceptor::open(
            s, *device_lane, where, url.device, [this, &a, number](std::unique_ptr<verbs::arrival> peer) {
                auto chosen = shard_of(*peer);
                if (!chosen)
                    chosen = std::exchange(a.next, (a.next + 1) % servers.size());
                arrival_handover::send(*servers[*chosen], &shard_server::adopt_rdma, std::move(peer), number);
            });
        if (!made)
            return made.error();
        a.rdma = std::move(*made);
        return {};
    });
    if (!opened)
        fail(opened.error());
    return a.rdma->where();
}
#else
net::endpoint server::impl::listen_rdma(const listen_url& url, const net::endpoint&, acceptor&)
{
    throw config_error(
        "listen " + url.text() +
        ": this build has no RDMA devices (libibverbs and librdmacm were missing); iwarp:// needs none");
}
#endif

void server::impl::listen(const listen_url& url, const net::endpoint& where)
{
    acceptors.push_back(std::make_unique<acceptor>());
    acceptor& a = *acceptors.back();
    const auto fail = [&](const error& e) {
        throw_start_failure(e,
                            "listen " + url.text() + ": " + e.message() + ": " + cure_of_listening(e, url));
    };
    if (url.scheme == "rdma") {
        places.push_back({url.scheme, listen_rdma(url, where, a)});
        return;
    }
    if (url.scheme == "iwarp") {
        // Each shard has the same listeners in the same order, so one number names all of them.
        for (std::size_t i = 0; i < servers.size(); ++i) {
            const auto number =
                rt.call(i, [&](shard&) { return servers[i]->listen_iwarp(url.text(), iwarp_others); });
            if (!number)
                fail(number.error());
            a.iwarp_listener = *number;
        }
    }
    const result<void> opened = rt.call(0, [&](shard& s) -> result<void> {
        stream::listener_options how;
        how.max_descriptors = most_connections();
        auto made = stream::listener::open(
            s.reactor(), where,
            [this, &a](net::unique_fd fd, const net::endpoint& peer) { hand_over(a, std::move(fd), peer); },
            how);
        if (!made)
            return made.error();
        a.socket = std::move(*made);
        return {};
    });
    if (!opened)
        fail(opened.error());
    places.push_back({url.scheme, a.socket->where()});
}

void server::impl::expose(metric_registry& registry)
{
    std::vector<const shard_server*> shards;
    shards.reserve(servers.size());
    for (const auto& s : servers)
        shards.push_back(s.get());
    metrics = expose_server(registry, shards, *duplicates);
    for (const auto& a : acceptors) {
        if (a->socket)
            append(metrics, stream::expose(registry, a->socket->stats()));
#ifdef VERBENA_HAS_RDMA
        if (a->rdma)
            append(metrics, rdma::expose_ends(registry, a->rdma->counters()));
#endif
    }
}

void server::impl::take_down(std::chrono::milliseconds limit)
{
    if (!std::exchange(running, false))
        return;
    metrics.clear();
    rt.call(0, [&](shard&) {
        for (auto& a : acceptors) {
            a->socket.reset();
#ifdef VERBENA_HAS_RDMA
            if (a->rdma)
                a->rdma->close();
#endif
        }
    });
    const time_point deadline = system_clock().now() + limit;
    // A connection on its way to a shard arrives there before the call that shuts it down.
    std::vector<std::future<void>> ends;
    ends.reserve(servers.size());
    for (std::size_t i = 0; i < servers.size(); ++i) {
        begin_beside(ends, [this, i, deadline] {
            auto shut_down = [this, i, deadline](shard&) { return servers[i]->shut_down(deadline); };
            rt.run(i, shut_down);
        });
    }
    end_all(ends);
    for (verbs::side_connections* const each : {iwarp_others, rdma_others}) {
        if (each == nullptr)
            continue;
        auto let_go = [each](shard&) { return each->end(); };
        rt.run(0, let_go);
    }
    for (std::size_t i = 0; i < servers.size(); ++i)
        rt.call(i, [&](shard&) { servers[i].reset(); });
#ifdef VERBENA_HAS_RDMA
    // Not before: peers on their way to a shard belonged to its event channel.
    rt.call(0, [&](shard&) {
        for (auto& a : acceptors)
            a->rdma.reset();
    });
#endif
    // What has left a device comes home while the shards still run.
    if (device_lane != nullptr)
        device_lane->finish();
    acceptors.clear();
}

verbs::side_connections* server::impl::others_on(verbs::device& device, std::string_view transport,
                                                 const std::vector<rpc::program_module*>& programs)
{
    if (std::ranges::none_of(listeners, [&](const planned_listener& l) { return l.url.scheme == transport; }))
        return nullptr;
    verbs::side_connections* found = nullptr;
    for (rpc::program_module* const m : programs) {
        verbs::side_connections* own = nullptr;
        try {
            own = m->connections_on(device, transport);
        } catch (const config_error&) {
            throw;
        } catch (const std::exception& e) {
            throw program_failure(*m, e.what());
        }
        if (own != nullptr && found != nullptr)
            throw program_failure(*m, "connections_on() gave connections for " + std::string(transport) +
                                          ", where another module has some already: leave one of them out");
        found = own != nullptr ? own : found;
    }
    return found;
}

void server::impl::ask_for_others(const std::vector<rpc::program_module*>& programs)
{
    iwarp_others = others_on(*shard_options.iwarp, "iwarp", programs);
#ifdef VERBENA_HAS_RDMA
    rdma_others = others_on(*shard_options.rdma, "rdma", programs);
#endif
}

void server::impl::open(metric_registry& registry)
{
    for (const planned_listener& l : listeners)
        at_place_of_start(l.place, [&] { listen(l.url, l.where); });
    expose(registry);
}

server::server(runtime& rt, options o, std::vector<planned_listener> listeners)
    : impl_(std::make_unique<impl>(rt, std::move(o), std::move(listeners)))
{
}

server::~server() { stop(std::chrono::milliseconds(0)); }

void server::start(const std::vector<rpc::program_module*>& programs, metric_registry& registry)
{
    try {
        impl_->make_servers([&](shard& s) {
            return std::make_unique<shard_server>(s, impl_->shard_options, programs, *impl_->duplicates);
        });
        impl_->ask_for_others(programs);
        impl_->open(registry);
    } catch (...) {
        stop(std::chrono::milliseconds(0));
        throw;
    }
}

void server::start(verbs::protocol_module& protocol, metric_registry& registry)
{
    try {
        impl_->verbs_protocol = &protocol;
        impl_->shard_options.bounds_connections = false;
        impl_->shard_options.route = [own = impl_.get()](std::unique_ptr<verbs::arrival>& peer,
                                                         std::size_t at, std::size_t listener) {
            own->route_iwarp(peer, at, listener);
        };
        impl_->make_servers([&](shard& s) {
            return std::make_unique<shard_server>(s, impl_->shard_options, protocol, *impl_->duplicates);
        });
        impl_->open(registry);
    } catch (...) {
        stop(std::chrono::milliseconds(0));
        throw;
    }
}

// A listener that names none is led to its device by its address, which the kernel may take to another.
std::vector<device_choice> server::devices() const
{
    std::vector<device_choice> all;
    for (const planned_listener& l : impl_->listeners) {
        if (l.url.scheme == "rdma")
            all.push_back(l.url.device);
    }
    return all;
}

connection_list& server::connections(std::size_t shard) noexcept
{
    return impl_->servers[shard]->connections();
}

const std::vector<listen_place>& server::places() const noexcept { return impl_->places; }

void server::stop(std::chrono::milliseconds limit) { impl_->take_down(limit); }

namespace {

// A byte stream has no RDMA operations, which such a protocol is made of.
bool is_verbs(const protocol_module& protocol) noexcept
{
    return dynamic_cast<const verbs::protocol_module*>(&protocol) != nullptr;
}

} // namespace

std::vector<setting> listener_settings(const protocol_module& protocol)
{
    std::string standard;
    for (const std::string& url : protocol.default_listeners())
        standard += (standard.empty() ? "" : " and ") + url;
    return {
        setting::list(
            "listen",
            "Listen here; repeated for more. iwarp://HOST:PORT" +
                std::string(is_verbs(protocol) ? " or " : ", tcp://HOST:PORT or ") +
                "rdma://HOST:PORT[?device=NAME[:PORT]]; HOST * for every address; ?device= insists on that "
                "RDMA device, as `verbena doctor` names it (default: " +
                standard + ")")
            .form("URL"),
        setting::number("rdma_read_seconds", {1, 3600}, 30,
                        "How long a client may take to answer the RDMA Reads of its calls"),
        setting::flag("iwarp_crc", false,
                      "Asks for a CRC32C in each FPDU of iwarp:// connections (RFC 5044)"),
    };
}

listen_plan plan_listeners(const protocol_module& protocol, setting_values& values,
                           std::set<std::string>& addresses)
{
    listen_plan plan;
    plan.iwarp_crc = values.flag("iwarp_crc");
    plan.read_limit = std::chrono::seconds(values.number("rdma_read_seconds"));
    auto& listen = std::get<setting_values::value::texts>(values.find("listen")->data);
    if (listen.empty() && values.written("listen"))
        throw config_error(values.place("listen"),
                           "listen is empty: name an address, or leave it out for the defaults");
    if (listen.empty())
        listen = protocol.default_listeners();
    for (std::size_t i = 0; i < listen.size(); ++i) {
        const setting_place place = values.place("listen", i);
        const listen_url url = at_place(place, [&] { return parse_listen_url(listen[i], protocol); });
        if (url.port != 0 && !addresses.insert(url.address()).second)
            throw config_error(place, "listen " + listen[i] + ": " + url.address() +
                                          " stands twice; each transport needs a port of its own");
        if (is_verbs(protocol) && url.scheme == "tcp")
            throw config_error(
                place, "listen " + listen[i] +
                           ": this protocol is made of RDMA operations, which a byte stream has none of; "
                           "write iwarp:// or "
                           "rdma://");
        listen[i] = url.text();
        plan.urls.push_back({place, url});
    }
    return plan;
}

std::vector<planned_listener> resolve_listeners(const listen_plan& plan)
{
    std::vector<planned_listener> all;
    for (const listen_plan::wanted& w : plan.urls) {
        for (const net::endpoint& where : at_place_of_start(w.place, [&] { return endpoints_of(w.url); }))
            all.push_back({w.place, w.url, where});
    }
    return all;
}

} // namespace verbena::services
