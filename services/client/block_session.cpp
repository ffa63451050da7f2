// SPDX-License-Identifier: Apache-2.0
#include "block_session.hpp"

#include "percent.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/scope.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <unistd.h>

namespace verbena::cli {

namespace {

struct device_url {
    std::string scheme;  ///< "iwarp", "rdma"
    std::string address; ///< HOST:PORT
    std::string device;  ///< empty where none is given
};

result<device_url> parse_device_url(std::string_view text)
{
    constexpr std::string_view prefixes[] = {"rnbd+iwarp://", "rnbd+rdma://"};
    for (const std::string_view prefix : prefixes) {
        if (!text.starts_with(prefix))
            continue;
        device_url u;
        u.scheme = prefix.substr(5, prefix.find(':') - 5);
        const std::string_view rest = text.substr(prefix.size());
        const std::size_t slash = rest.find('/');
        auto device = decode_percent(slash == rest.npos ? std::string_view() : rest.substr(slash + 1));
        if (!device)
            return device.error();
        u.device = std::move(*device);
        if (u.device.size() > rnbd::max_device_name)
            return error(std::errc::invalid_argument, "a device's name has up to 254 bytes");
        const std::string_view authority = rest.substr(0, slash);
        if (authority.empty() || (authority.front() == ':' && authority.rfind(':') == 0))
            return error(std::errc::invalid_argument, "a host is missing, as in rnbd+iwarp://HOST/DEVICE");
        const auto place = net::split_host_port(authority, rtrs::default_port);
        const bool only_port_is_wrong =
            !place && net::split_host_port(authority.substr(0, authority.rfind(':')), rtrs::default_port);
        if (only_port_is_wrong || (place && place->port == 0))
            return error(std::errc::invalid_argument,
                         "a port is a number from 1 to 65535; leave it out for 1234");
        if (!place)
            return place.error();
        const bool v6 = place->host.find(':') != std::string::npos;
        u.address = (v6 ? '[' + place->host + ']' : place->host) + ':' + std::to_string(place->port);
        return u;
    }
    return error(std::errc::invalid_argument,
                 "a device's URL looks like rnbd+iwarp://HOST[:1234]/DEVICE or rnbd+rdma://HOST/DEVICE");
}

constexpr auto close_patience = std::chrono::seconds(2);

task<result<void>> happened(event& e)
{
    (void)co_await e.wait();
    co_return result<void>();
}

std::string own_name()
{
    char host[65] = {};
    ::gethostname(host, sizeof host - 1);
    std::string name = std::string(host) + '-' + std::to_string(::getpid());
    std::ranges::replace_if(name, [](char c) { return c == '.' || c == '/'; }, '-');
    return name;
}

bool is_of_resolver(const error& e) { return std::string_view(e.code().category().name()) == "resolver"; }

std::string cure_of_path(const error& e)
{
    if (is_of_resolver(e))
        return "is the host's name right, and does DNS or /etc/hosts know it?";
    if (e == std::errc::connection_refused && e.detail() == EACCES)
        return "the server has no device for this host: clients= of its devices say for whom they are";
    if (e == std::errc::connection_refused && e.detail() == EDQUOT)
        return "this host has as many sessions or connections there as one may, or as much memory: end some, "
               "or raise "
               "what the server's log names: sessions_per_peer or connections_per_peer of [block], "
               "peer_memory_mib of "
               "[daemon]";
    if (e == std::errc::connection_refused && e.detail() == ENOSPC)
        return "as many sessions are there as may be: end some, or raise sessions of [block] at the server";
    if (e == std::errc::connection_refused && e.detail() == ENOBUFS)
        return "the server has no memory left for this connection: end sessions, or raise memory_mib of "
               "[daemon] "
               "there";
    if (e == std::errc::connection_refused && e.detail() == EAGAIN)
        return "too many clients of this host are connecting there at once: try again";
    return "does `verbenad block` or the kernel's rnbd-server listen there, is the session's name free, and "
           "has the server "
           "memory for one more session (its log says)?";
}

std::string cure_of_open(const error& e, const std::string& to_read)
{
    if (e == std::errc::no_such_file_or_directory)
        return "the server has no device of this name";
    if (e == std::errc::permission_denied)
        return "the device is not for this host or session: clients= and session= of the server say for whom "
               "it is";
    if (e == std::errc::operation_not_permitted)
        return "another client has it open for writing";
    if (e == std::errc::read_only_file_system)
        return "the server does not let it be changed" + (to_read.empty() ? "" : ": " + to_read);
    return {};
}

} // namespace

bool is_device_url(std::string_view text) noexcept { return text.starts_with("rnbd+"); }

std::string check(const block_place& p)
{
    const auto main = parse_device_url(p.url);
    if (!main)
        return p.url + ": " + main.error().context();
    if (main->device.empty())
        return p.url + ": a device is missing, as in rnbd+iwarp://HOST/DEVICE";
    for (const std::string& text : p.paths) {
        if (const auto more = parse_device_url(text); !more)
            return text + ": " + more.error().context();
    }
    const bool good =
        p.session.size() <= rtrs::max_session_name && p.session.find_first_of("/.") == p.session.npos;
    return good ? "" : p.session + ": a session's name has up to 254 bytes, none of which is '/' or '.'";
}

task<failure> block_session::connect(const block_place& p)
{
    to_read_ = p.to_read;
    std::vector<std::string> all = {p.url};
    all.insert(all.end(), p.paths.begin(), p.paths.end());
    rtrs::client_options o;
    o.session = p.session.empty() ? own_name() : p.session;
    o.connections = static_cast<std::uint16_t>(p.connections + 1);
    if (p.patience)
        o.patience = *p.patience;
    session_ = std::make_unique<rtrs::client>(shard_, buffers_, std::move(o), stats_);
    bool connected = false;
    for (const std::string& text : all) {
        const auto u = parse_device_url(text);
        if (!u)
            co_return failure(text, u.error());
        if (url_.empty()) {
            url_ = text;
            device_name_ = u->device;
        }
        const auto provider = find_(u->scheme);
        if (!provider)
            co_return failure(text, provider.error());
        const auto added = co_await add_path(**provider, u->address);
        connected |= added.has_value();
        if (added)
            continue;
        unreached_.emplace_back("cannot connect to " + text, added.error(), cure_of_path(added.error()));
        // Waiting helps none of these.
        if (added.error() == std::errc::operation_not_supported || added.error() == std::errc::file_exists ||
            is_of_resolver(added.error()))
            co_return unreached_.back();
    }
    if (!connected)
        co_return unreached_.front();
    blocks_ = std::make_unique<rnbd::client>(*session_);
    const auto begun = co_await blocks_->begin();
    if (!begun)
        co_return failure("no answer from " + url_, begun.error());
    co_return failure();
}

// By the first of the host's addresses that answers. If none does, the last one is tried again for as long as the session lives.
task<result<void>> block_session::add_path(verbs::context& provider, const std::string& address)
{
    const auto endpoints = net::resolve(address);
    if (!endpoints)
        co_return endpoints.error();
    result<void> added = error(std::errc::address_not_available, "the name has no address");
    for (const net::endpoint& to : *endpoints) {
        const bool last = &to == &endpoints->back();
        added = co_await session_->add_path(provider, to.to_string(),
                                            last ? rtrs::first_failure::is_like_any_other
                                                 : rtrs::first_failure::is_the_end);
        if (added)
            break;
    }
    co_return added;
}

task<failure> block_session::open(rnbd::access_mode mode)
{
    auto made = co_await blocks_->open(device_name_, mode);
    if (!made)
        co_return failure("cannot open " + url_, made.error(), cure_of_open(made.error(), to_read_));
    device_ = std::move(*made);
    co_return failure();
}

task<failure> block_session::begin_anew()
{
    const auto done = co_await device_->begin_anew();
    if (!done)
        co_return failure("cannot open " + url_ + " again", done.error(),
                          cure_of_open(done.error(), to_read_));
    co_return failure();
}

task<void> block_session::close_device(event& over)
{
    (void)co_await blocks_->close(std::move(device_));
    over.set();
}

task<void> block_session::close()
{
    if (device_) {
        // So that the next client finds the device free. If the server does not answer, the end of the session frees it.
        task<void> ending = session_->close();
        scope closing(shard_);
        event over;
        try {
            closing.spawn(already_made, close_device(over));
            (void)co_await with_timeout(close_patience, happened(over));
        } catch (const std::bad_alloc&) { // without memory likewise
        }
        co_await ending; // a CLOSE that is under way fails
        co_await closing.join();
        device_.reset(); // still there if no CLOSE could be sent
    }
    if (session_)
        co_await session_->close();
    blocks_.reset();
}

} // namespace verbena::cli
