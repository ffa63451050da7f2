// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <verbena/core/net.hpp>
#include <verbena/protocols/nfs/exports.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>
#include <unistd.h>

namespace verbena::daemon {

namespace {

constexpr std::size_t max_exports = 4096;
constexpr std::size_t max_listeners = 64;

std::string name_of(const export_config& e)
{
    return "export of " + (e.directory.empty() ? std::string(e.backend) : e.directory);
}

void check_range(const std::string& name, std::uint64_t value, const number_range& range)
{
    if (!range.holds(value))
        throw config_error(name + ": must be " + range.text() + ", not " + std::to_string(value));
}

void check_pseudo(const export_config& e)
{
    const std::string& path = e.pseudo;
    const auto fail = [&](const char* rule) {
        throw config_error(name_of(e) + ": the pseudo-path " + path + ' ' + rule);
    };
    if (path.size() > 1024) // RFC 1813 5.2, MNTPATHLEN
        fail("is longer than 1024 bytes");
    if (path.front() != '/')
        fail("must begin with /");
    if (path == "/")
        return;
    for (std::size_t begin = 1; begin <= path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        const std::string_view part = std::string_view(path).substr(begin, end - begin);
        if (part.empty())
            fail("must not end with / or hold two of them in a row");
        if (part == "." || part == "..")
            fail("must not hold . or ..");
        begin = end + 1;
    }
}

void check_memfs(const export_config& e)
{
    const auto refuse = [&](const std::string& why, const std::string& what) {
        throw config_error(name_of(e) + ": memfs keeps its files in memory and " + why + ": leave out " +
                           what);
    };
    if (!e.directory.empty())
        refuse("takes no directory", e.directory);
    if (e.crossmnt)
        refuse("nothing can be mounted beneath them", "crossmnt");
    if (e.async)
        refuse("has no stable storage that async would not wait for", "async");
    if (e.handles != "auto")
        refuse("makes handles of its own", "handles=" + e.handles);
}

void complete_export(export_config& e, bool first)
{
    if (e.backend == "posixfs") {
        if (e.directory.empty())
            throw config_error("an export needs a directory, as in /srv/data:/data");
        e.directory = std::filesystem::absolute(e.directory).lexically_normal().string();
        if (e.directory.size() > 1 && e.directory.back() == '/')
            e.directory.pop_back();
    }
    if (std::ranges::find(known_backends, e.backend) == std::end(known_backends)) {
        throw config_error(name_of(e) + ": no back end " + e.backend +
                           did_you_mean(e.backend, {std::begin(known_backends), std::end(known_backends)}));
    }
    if (std::ranges::find(known_handles, e.handles) == std::end(known_handles)) {
        throw config_error(name_of(e) + ": no handles " + e.handles +
                           did_you_mean(e.handles, {std::begin(known_handles), std::end(known_handles)}));
    }
    for (const std::string& t : e.transports) {
        if (std::ranges::find(known_transports, t) == std::end(known_transports)) {
            throw config_error(name_of(e) + ": no transport " + t +
                               did_you_mean(t, {std::begin(known_transports), std::end(known_transports)}));
        }
    }
    if (e.backend == "memfs")
        check_memfs(e);
    check_range(name_of(e) + ": anonuid", e.anonuid, ranges::id);
    check_range(name_of(e) + ": anongid", e.anongid, ranges::id);
    (void)clients_of(e);
    if (e.pseudo.empty()) {
        if (!first) {
            const std::string name = std::filesystem::path(e.directory).filename().string();
            const std::string example = name.empty() ? std::string("data") : name;
            throw config_error(name_of(e) +
                               " needs a pseudo-path of its own, since only the first export may do "
                               "without: write " +
                               e.directory + ":/" + example);
        }
        e.pseudo = "/export";
    }
    check_pseudo(e);
}

std::string default_state_directory()
{
    if (::geteuid() == 0)
        return "/var/lib/verbena";
    if (const char* base = std::getenv("XDG_STATE_HOME"); base != nullptr && *base == '/')
        return std::string(base) + "/verbena";
    if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
        return std::string(home) + "/.local/state/verbena";
    throw config_error("neither XDG_STATE_HOME nor HOME is set: say where state is kept with --state DIR");
}

constexpr std::uint64_t mebibytes_per_shard = 4;

std::uint16_t default_port(std::string_view scheme) { return scheme == "tcp" ? 2049 : 20049; }

void check_metrics(const std::string& address)
{
    if (address == "off")
        return;
    const bool local = address.starts_with("localhost:");
    const auto where = net::endpoint::parse(local ? "127.0.0.1" + address.substr(9) : address);
    if (!where)
        throw config_error("metrics " + address +
                           ": must be a numeric IPv4 address with a port, as in 127.0.0.1:9464, or off");
    // The library that answers scrapes may be built without IPv6, and nothing tells.
    if (address.front() == '[')
        throw config_error("metrics " + address + ": metrics are served over IPv4 only; write " +
                           (where->is_wildcard() ? "0.0.0.0:" : "127.0.0.1:") +
                           std::to_string(where->port()) + " or another IPv4 address of this host, or off");
}

} // namespace

std::string number_range::text() const
{
    return "a number from " + std::to_string(low) + " to " + std::to_string(high);
}

std::string listen_url::address() const
{
    const bool brackets = host.find(':') != std::string::npos;
    return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string listen_url::text() const
{
    return scheme + "://" + address() + (device.name.empty() ? "" : "?device=" + device.text());
}

listen_url parse_listen_url(std::string_view text)
{
    const auto fail = [&](const std::string& rule) {
        throw config_error("listen " + std::string(text) + ": " + rule);
    };
    const std::size_t colon = text.find("://");
    if (colon == std::string_view::npos)
        fail("must be a URL, as in tcp://127.0.0.1:2049");
    listen_url url;
    url.scheme = text.substr(0, colon);
    const std::vector<std::string_view> schemes(std::begin(known_transports), std::end(known_transports));
    if (std::ranges::find(schemes, url.scheme) == schemes.end())
        fail("no transport " + url.scheme + did_you_mean(url.scheme, schemes));
    std::string_view rest = text.substr(colon + 3);
    if (const std::size_t mark = rest.find('?'); mark != std::string_view::npos) {
        constexpr std::string_view key = "device=";
        const std::string_view query = rest.substr(mark + 1);
        rest = rest.substr(0, mark);
        if (url.scheme != "rdma")
            fail("only rdma:// chooses a device; leave out what follows the address");
        if (!query.starts_with(key))
            fail("what follows ? must be device=NAME or device=NAME:PORT");
        const auto device = parse_device_choice(query.substr(key.size()));
        if (!device)
            fail("device must be NAME or NAME:PORT, ports count from 1; `verbena doctor` lists them");
        url.device = *device;
    }
    if (rest.ends_with('/'))
        rest.remove_suffix(1);
    if (rest.find('/') != std::string_view::npos)
        fail("nothing may follow the address and port; where exports appear is their own matter (--export "
             "DIR:PSEUDO)");
    // Port 0 is a wish for a free port here, which the splitter takes for no port at all.
    const bool any_port = rest.ends_with(":0");
    if (any_port)
        rest.remove_suffix(2);
    const auto split = net::split_host_port(rest, default_port(url.scheme));
    if (!split)
        fail(split.error().context());
    url.host = split->host;
    url.port = any_port ? 0 : split->port;
    return url;
}

device_choice common_device(const std::vector<std::string>& listen)
{
    std::optional<device_choice> all;
    for (const std::string& text : listen) {
        const listen_url url = parse_listen_url(text);
        if (url.scheme != "rdma")
            continue;
        if (!all)
            all = url.device;
        else if (all->name != url.device.name)
            return {};
        else if (all->port != url.device.port)
            all->port = 0;
    }
    return all.value_or(device_choice());
}

nfs::client_list clients_of(const export_config& e)
{
    nfs::client_list clients;
    for (const std::string& text : e.clients) {
        if (const auto added = clients.add(text); !added)
            throw config_error(name_of(e) + ": clients=" + text + ": " +
                               std::string(added.error().context()) +
                               "; write an address, a prefix as 10.0.0.0/8, or *");
    }
    return clients;
}

void complete(config& c)
{
    if (c.exports.empty())
        throw config_error(
            "nothing is exported: name a directory with --export DIR, or in an [[nfs.export]] table");
    if (c.exports.size() > max_exports)
        throw config_error("more than " + std::to_string(max_exports) + " exports");
    std::set<std::string_view> pseudo_paths;
    for (std::size_t i = 0; i < c.exports.size(); ++i) {
        at_place(c.exports[i].place.text, [&] { complete_export(c.exports[i], i == 0); });
        if (!pseudo_paths.insert(c.exports[i].pseudo).second)
            throw config_error(c.exports[i].place.text + name_of(c.exports[i]) + ": the pseudo-path " +
                               c.exports[i].pseudo + " is taken by an export before it; give it another one");
    }

    if (c.listen.empty())
        c.listen = {"iwarp://127.0.0.1:20049", "tcp://127.0.0.1:2049"};
    if (c.listen.size() > max_listeners)
        throw config_error("more than " + std::to_string(max_listeners) + " listeners");
    std::set<std::string> addresses;
    for (std::size_t i = 0; i < c.listen.size(); ++i) {
        std::string& text = c.listen[i];
        const std::string place = c.listen_place(i);
        const listen_url url = at_place(place, [&] { return parse_listen_url(text); });
        if (url.port != 0 && !addresses.insert(url.address()).second)
            throw config_error(place + "listen " + text + ": " + url.address() +
                               " stands twice; each transport needs a port "
                               "of its own");
        text = url.text();
    }
    at_place(c.metrics_place, [&] { check_metrics(c.metrics); });

    if (c.state.empty())
        c.state = default_state_directory();
    c.state = std::filesystem::absolute(c.state).lexically_normal().string();
    if (!c.shards)
        c.shards = std::clamp(std::thread::hardware_concurrency(), 1U, config::max_default_shards);
    check_range("shards", *c.shards, ranges::shards);
    check_range("spin_microseconds", c.spin_microseconds, ranges::spin_microseconds);
    check_range("memory_mib", c.memory_mib, ranges::memory_mib);
    if (c.memory_mib < mebibytes_per_shard * *c.shards)
        throw config_error("memory_mib: " + std::to_string(*c.shards) + " shards need at least " +
                           std::to_string(mebibytes_per_shard * *c.shards) +
                           "; set it in [daemon] of a file for `verbenad serve`, or have fewer shards");
    check_range("blocking_threads", c.blocking_threads, ranges::blocking_threads);
    check_range("drain_seconds", c.drain_seconds, ranges::drain_seconds);
    check_range("rdma_read_seconds", c.rdma_read_seconds, ranges::rdma_read_seconds);
}

} // namespace verbena::daemon
