// SPDX-License-Identifier: Apache-2.0
#include "nfs_service.hpp"
#include "backends.hpp"
#include "rdma_acceptor.hpp"
#include "rdma_port_metrics.hpp"
#include "shard_server.hpp"

#include <verbena/core/log.hpp>
#include <verbena/plugins/posixfs.hpp>
#include <verbena/transports/stream.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <future>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace verbena::daemon {

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

#ifdef VERBENA_HAS_RDMA
// Likewise, by RDMA.
class rdma_handover final : public remote_message {
public:
    rdma_handover(shard_server& to, std::unique_ptr<rdma::arrival> peer, std::size_t listener) noexcept
        : to_(to), peer_(std::move(peer)), listener_(listener)
    {
    }
    void deliver() noexcept override
    {
        const std::unique_ptr<rdma_handover> self(this);
        to_.adopt_rdma(std::move(peer_), listener_);
    }

private:
    shard_server& to_;
    std::unique_ptr<rdma::arrival> peer_;
    std::size_t listener_;
};
#endif

// Of all exports together, as far as each has one: what limits a service's threads is a few thousand.
constexpr std::size_t most_lane_threads = 1024;

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

std::string join(const std::vector<std::string>& words, const char* between)
{
    std::string text;
    for (const std::string& word : words)
        text += (text.empty() ? "" : between) + word;
    return text;
}

std::string option_text(const export_config& e)
{
    std::vector<std::string> words = {e.read_only ? "ro" : "rw"};
    if (e.all_squash)
        words.emplace_back("all_squash");
    else if (e.backend != "posixfs" || posixfs::takes_callers_rights()) // else nobody is told from others
        words.emplace_back(e.root_squash ? "root_squash" : "root_squash=no");
    words.emplace_back(e.async ? "async" : "sync");
    if (e.secure)
        words.emplace_back("secure");
    if (e.crossmnt)
        words.emplace_back("crossmnt");
    for (const std::string& t : e.transports)
        words.push_back("transport=" + t);
    return join(words, ",");
}

// Where a file has the export.
std::string place_of(const config& c, std::string_view pseudo)
{
    const auto found = std::ranges::find(c.exports, pseudo, &export_config::pseudo);
    return found == c.exports.end() ? std::string() : found->place.text;
}

std::string who(const nfs::client_list& clients)
{
    if (clients.everybody())
        return "everybody";
    return clients.local_only() ? "this host only" : join(clients.texts(), " ");
}

std::vector<net::endpoint> endpoints_of(const listen_url& url)
{
    std::vector<net::endpoint> all;
    const std::string port = ":" + std::to_string(url.port);
    if (url.host == "*") {
        for (const char* any : {"0.0.0.0", "[::]"})
            all.push_back(*net::endpoint::parse(any + port));
        return all;
    }
    // Port 0 asks for a free one, which an address to connect to can't.
    listen_url asked = url;
    if (asked.port == 0)
        asked.port = 1;
    auto found = net::resolve(asked.address());
    if (!found)
        throw config_error("listen " + url.text() + ": " + found.error().message() +
                           "; write an address or a name of this host, or * for every address");
    all = std::move(*found);
    for (net::endpoint& e : all)
        e.set_port(url.port);
    return all;
}

std::string cure_of(const error& e, const listen_url& url)
{
    switch (e.errno_value()) {
    case EADDRINUSE:
        return "another server has it; choose another port, as in --listen " + url.scheme + "://" +
               (url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]") + ":" +
               std::to_string(url.port + 10000U > 65535U ? url.port - 10000U : url.port + 10000U);
    case EADDRNOTAVAIL: return "the address is not of this host; `ip address` lists those that are";
    case EACCES: return "ports below 1024 need CAP_NET_BIND_SERVICE";
    default: return "see errno";
    }
}

bool uses_devices(const config& c)
{
    return std::ranges::any_of(c.listen, [](const std::string& url) { return url.starts_with("rdma://"); });
}

// A listener that names none is led to its device by its address, which the kernel may take to another.
std::vector<device_choice> devices_of(const config& c)
{
    std::vector<device_choice> all;
    for (const std::string& text : c.listen) {
        if (const listen_url url = parse_listen_url(text); url.scheme == "rdma")
            all.push_back(url.device);
    }
    return all;
}

// Each level that is made is ours alone. One that is there keeps its mode, and must not let others replace the key.
void make_state_directory(const std::string& path)
{
    const auto refuse = [&path](const std::string& why) {
        throw config_error("state " + path + ": " + why + "; choose a directory of yours with --state DIR");
    };
    std::filesystem::path level;
    for (const auto& part : std::filesystem::path(path)) {
        level /= part;
        if (::mkdir(level.c_str(), S_IRWXU) != 0 && errno != EEXIST)
            refuse(std::generic_category().message(errno));
    }
    struct stat s{};
    if (::stat(path.c_str(), &s) != 0)
        refuse(std::generic_category().message(errno));
    if (!S_ISDIR(s.st_mode))
        refuse("is no directory");
    if (s.st_uid != ::geteuid())
        refuse("belongs to user " + std::to_string(s.st_uid));
    if ((s.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        refuse("others may write there, and could replace the key of the file handles");
}

// Callers of such an export reach what this process may: the key, with which they could make handles to anything.
void refuse_exported_state(const config& c)
{
    std::error_code status;
    const auto state = std::filesystem::canonical(c.state, status);
    const bool everything_as_us = ::geteuid() != 0 || !posixfs::takes_callers_rights();
    for (const export_config& e : c.exports) {
        if (e.directory.empty() || !(everything_as_us || !e.root_squash || e.anonuid == 0))
            continue;
        const auto exported = std::filesystem::canonical(e.directory, status);
        if (std::ranges::mismatch(exported, state).in1 == exported.end())
            throw config_error(
                "state " + c.state + ": lies beneath the export " + e.pseudo +
                ", whose clients could read the key of the file handles there; choose a directory "
                "outside of it with --state DIR");
    }
}

} // namespace

struct nfs_service::impl {
    explicit impl(runtime& r) : rt(r) {}

    struct acceptor {
        std::unique_ptr<stream::listener> socket;
        std::optional<std::size_t> iwarp_listener;
#ifdef VERBENA_HAS_RDMA
        std::unique_ptr<rdma_acceptor> rdma; // in place of a socket
#endif
        std::size_t next = 0; // shard 0's
    };

    void open_exports(const config& c);
    void open_export(const config& c, const export_config& e);
    void refuse_public(const config& c);
    void make_servers(const config& c, const listener_count& listeners);
    void listen(const listen_url& url, const net::endpoint& where);
    net::endpoint listen_rdma(const listen_url& url, const net::endpoint& where, acceptor& a);
    void hand_over(acceptor& from, net::unique_fd socket, const net::endpoint& peer);
    void expose(metric_registry& registry, const config& c);
    void take_down(std::chrono::milliseconds limit);

    runtime& rt;
    std::vector<std::unique_ptr<storage::file_backend>> backends;
    nfs::export_table table;
    nfs::handle_key key{};
    nfs::mount3::mount_list mounts;
    std::unique_ptr<rpc::duplicate_request_cache> duplicates;
    // Its threads never take callers' rights: the kernel then refuses a thread its RDMA files. The runtime's.
    blocking_pool* device_lane = nullptr;
    std::vector<std::unique_ptr<shard_server>> servers;
    std::vector<std::unique_ptr<acceptor>> acceptors;
    std::vector<metric_registry::registration> metrics;
    std::vector<listening> listening_at;
    std::vector<exported> exported_as;
    bool running = true;
};

void nfs_service::impl::open_exports(const config& c)
{
    for (const export_config& e : c.exports)
        at_place(e.place.text, [&] { open_export(c, e); });
}

void nfs_service::impl::open_export(const config& c, const export_config& e)
{
    nfs::export_options options;
    options.pseudo = e.pseudo;
    const std::string name = "export " + e.pseudo;
    options.clients = clients_of(e);
    options.transports = e.transports;
    options.read_only = e.read_only;
    options.root_squash = e.root_squash;
    options.all_squash = e.all_squash;
    options.anonuid = e.anonuid;
    options.anongid = e.anongid;
    options.secure = e.secure;
    options.crossmnt = e.crossmnt;
    options.async = e.async;
    // A file system that hangs holds up its own export and no other.
    const auto share = static_cast<unsigned>(most_lane_threads / c.exports.size());
    const result<blocking_pool*> lane = rt.add_lane(name, std::clamp(share, 1u, c.blocking_threads));
    if (!lane)
        throw config_error(name + ": " + lane.error().message());
    opened_backend backend = open_backend(e, **lane, uses_devices(c));
    options.backend = backend.files.get();
    exported as{e.pseudo,        e.directory.empty() ? e.backend : e.directory,
                option_text(e),  who(options.clients),
                e.transports,    std::move(backend.notes),
                options.clients, e.secure};
    if (const auto added = table.add(std::move(options)); !added)
        throw config_error(name + ": " + added.error().message());
    exported_as.push_back(std::move(as));
    backends.push_back(std::move(backend.files));
}

void nfs_service::impl::refuse_public(const config& c)
{
    if (c.allow_public)
        return;
    std::vector<ip_address> addresses;
    for (std::size_t i = 0; i < c.listen.size(); ++i) {
        const auto at =
            at_place(c.listen_place(i), [&] { return endpoints_of(parse_listen_url(c.listen[i])); });
        for (const net::endpoint& where : at) {
            if (const auto address = ip_address::parse(where.address()))
                addresses.push_back(*address);
        }
    }
    const host_addresses host;
    for (const nfs::export_options& e : table.all()) {
        if (const auto fine = nfs::refuse_public(e, addresses, host); !fine)
            throw config_error(
                place_of(c, e.pseudo) + "export " + e.pseudo +
                (e.clients.everybody()
                     ? " would be open to the Internet"
                     : " has clients= with globally routable addresses, and is served on such a "
                       "one: calls would cross the Internet") +
                ", where AUTH_SYS lets a caller claim to be anybody: narrow clients= to private "
                "addresses, listen on a private address, or insist with --allow-public");
    }
}

void nfs_service::impl::make_servers(const config& c, const listener_count& listeners)
{
    make_state_directory(c.state);
    refuse_exported_state(c);
    auto loaded = nfs::load_or_create_key(c.state);
    if (!loaded)
        throw config_error("state " + c.state + ": " + loaded.error().message());
    key = *loaded;
    duplicates = std::make_unique<rpc::duplicate_request_cache>(
        rt.size(), rpc::duplicate_request_options::within(rt.budget().limit() / 4));
    for (std::size_t i = 0; i < rt.size(); ++i) {
        servers.push_back(rt.call(i, [&](shard& s) {
            return std::make_unique<shard_server>(s, c, table, key, mounts, *duplicates, listeners);
        }));
    }
}

void nfs_service::impl::hand_over(acceptor& from, net::unique_fd socket, const net::endpoint& peer)
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
net::endpoint nfs_service::impl::listen_rdma(const listen_url& url, const net::endpoint& where, acceptor& a)
{
    const auto fail = [&](const error& e) {
        throw config_error("listen " + url.text() + ": " + e.message());
    };
    if (device_lane == nullptr) {
        const result<blocking_pool*> lane = rt.add_lane("RDMA devices");
        if (!lane)
            fail(lane.error());
        device_lane = *lane;
    }
    std::size_t number = 0;
    for (std::size_t i = 0; i < servers.size(); ++i) {
        const auto made =
            rt.call(i, [&](shard&) { return servers[i]->listen_rdma(url.text(), *device_lane); });
        if (!made)
            fail(made.error());
        number = *made;
    }
    const result<void> opened = rt.call(0, [&](shard& s) -> result<void> {
        auto made = rdma_acceptor::open(
            s, *device_lane, where, url.device, [this, &a, number](std::unique_ptr<rdma::arrival> peer) {
                shard_server& to = *servers[a.next];
                a.next = (a.next + 1) % servers.size();
                to.where().post_remote(*new rdma_handover(to, std::move(peer), number));
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
net::endpoint nfs_service::impl::listen_rdma(const listen_url& url, const net::endpoint&, acceptor&)
{
    throw config_error(
        "listen " + url.text() +
        ": this build has no RDMA devices (libibverbs and librdmacm were missing); iwarp:// needs none");
}
#endif

void nfs_service::impl::listen(const listen_url& url, const net::endpoint& where)
{
    acceptors.push_back(std::make_unique<acceptor>());
    acceptor& a = *acceptors.back();
    const auto fail = [&](const error& e) {
        throw config_error("listen " + url.text() + ": " + e.message() + ": " + cure_of(e, url));
    };
    if (url.scheme == "rdma") {
        listening_at.push_back({url.scheme, listen_rdma(url, where, a)});
        return;
    }
    if (url.scheme == "iwarp") {
        // Each shard has the same listeners in the same order, so one number names all of them.
        for (std::size_t i = 0; i < servers.size(); ++i) {
            const auto number = rt.call(i, [&](shard&) { return servers[i]->listen_iwarp(url.text()); });
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
    listening_at.push_back({url.scheme, a.socket->where()});
}

void nfs_service::impl::expose(metric_registry& registry, const config& c)
{
    std::vector<const shard_server*> shards;
    shards.reserve(servers.size());
    for (const auto& s : servers)
        shards.push_back(s.get());
    metrics = expose_nfs(registry, shards, *duplicates);
    std::vector<const stream::listener*> sockets;
    sockets.reserve(acceptors.size());
    for (const auto& a : acceptors) {
        if (a->socket)
            sockets.push_back(a->socket.get());
    }
    metrics.push_back(expose_listeners(registry, std::move(sockets)));
    metrics.push_back(expose_rdma_ports(registry, devices_of(c)));
#ifdef VERBENA_HAS_RDMA
    std::vector<const rdma::stats*> devices;
    for (const auto& a : acceptors) {
        if (a->rdma)
            devices.push_back(&a->rdma->counters());
    }
    metrics.push_back(expose_rdma_acceptors(registry, std::move(devices)));
#endif
}

void nfs_service::impl::take_down(std::chrono::milliseconds limit)
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
        ends.push_back(std::async(std::launch::async, [this, i, deadline] {
            auto shut_down = [this, i, deadline](shard&) { return servers[i]->shut_down(deadline); };
            rt.run(i, shut_down);
        }));
    }
    for (auto& end : ends)
        end.get();
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

nfs_service::nfs_service(const config& c, runtime& rt, metric_registry& registry)
    : impl_(std::make_unique<impl>(rt))
{
    impl_->open_exports(c);
    impl_->refuse_public(c);
    struct wanted {
        std::string place; // in a file
        listen_url url;
        net::endpoint where;
    };
    std::vector<wanted> all;
    listener_count count;
    for (std::size_t i = 0; i < c.listen.size(); ++i) {
        const listen_url url = parse_listen_url(c.listen[i]);
        for (const net::endpoint& where : at_place(c.listen_place(i), [&] { return endpoints_of(url); })) {
            all.push_back({c.listen_place(i), url, where});
            ++count.all;
            count.rdma += url.scheme == "tcp" ? 0 : 1;
        }
    }
    impl_->make_servers(c, count);
    try {
        for (const wanted& w : all)
            at_place(w.place, [&] { impl_->listen(w.url, w.where); });
        impl_->expose(registry, c);
    } catch (...) {
        impl_->take_down(std::chrono::milliseconds(0));
        throw;
    }
}

nfs_service::~nfs_service() { stop(std::chrono::milliseconds(0)); }

std::string nfs_service::listening::url() const { return transport + "://" + where.to_string(); }

const std::vector<nfs_service::listening>& nfs_service::listeners() const noexcept
{
    return impl_->listening_at;
}
const std::vector<nfs_service::exported>& nfs_service::exports() const noexcept { return impl_->exported_as; }

void nfs_service::stop(std::chrono::milliseconds limit) { impl_->take_down(limit); }

} // namespace verbena::daemon
