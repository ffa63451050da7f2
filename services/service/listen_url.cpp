// SPDX-License-Identifier: Apache-2.0
#include "listen_url.hpp"

#include <verbena/core/module/settings.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/core/suggestion.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::services {

std::string listen_url::address() const
{
    const bool brackets = host.find(':') != std::string::npos;
    return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string listen_url::text() const
{
    return scheme + "://" + address() + (device.name.empty() ? "" : "?device=" + device.text());
}

listen_url parse_listen_url(std::string_view text, const protocol_module& protocol)
{
    const auto fail = [&](const std::string& rule) {
        throw config_error("listen " + std::string(text) + ": " + rule);
    };
    const std::size_t colon = text.find("://");
    if (colon == std::string_view::npos) {
        const std::vector<std::string> standard = protocol.default_listeners();
        fail("must be a URL, as in " + (standard.empty() ? "tcp://127.0.0.1:7000" : standard.front()));
    }
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
        fail("nothing may follow the address and port");
    // Port 0 is a wish for a free port here, which the splitter takes for no port at all.
    const bool any_port = rest.ends_with(":0");
    if (any_port)
        rest.remove_suffix(2);
    const auto split = net::split_host_port(rest, any_port ? 1 : protocol.default_port(url.scheme));
    if (!split)
        fail(split.error().context());
    url.host = split->host;
    url.port = any_port ? 0 : split->port;
    return url;
}

device_choice common_device(const std::vector<listen_url>& listen)
{
    std::optional<device_choice> all;
    for (const listen_url& url : listen) {
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
        throw start_error("listen " + url.text() + ": " + found.error().message() +
                          "; write an address or a name of this host, or * for every address");
    all = std::move(*found);
    for (net::endpoint& e : all)
        e.set_port(url.port);
    return all;
}

std::string cure_of_listening(const error& e, const listen_url& url)
{
    switch (e.errno_value()) {
    case EADDRINUSE:
        return "another server has it; choose another port (listen, or --listen), as in " + url.scheme +
               "://" + (url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]") + ":" +
               std::to_string(url.port + 10000U > 65535U ? url.port - 10000U : url.port + 10000U);
    case EADDRNOTAVAIL: return "the address is not of this host; `ip address` lists those that are";
    case EACCES: return "ports below 1024 need CAP_NET_BIND_SERVICE";
    default: return "see errno";
    }
}

} // namespace verbena::services
