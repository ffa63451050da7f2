// SPDX-License-Identifier: Apache-2.0
#include "url.hpp"

#include "percent.hpp"

#include <verbena/core/printable.hpp>

#include <verbena/core/net/net.hpp>

#include <algorithm>
#include <charconv>

namespace verbena::cli {
namespace {

constexpr std::uint16_t tcp_port = 2049;
constexpr std::uint16_t rdma_port = 20049; // RFC 8166 9
constexpr std::size_t max_path = 4096;

error bad(const char* rule) { return error(std::errc::invalid_argument, rule); }

std::string encode_percent(std::string_view path)
{
    constexpr std::string_view digits = "0123456789ABCDEF";
    std::string out;
    while (!path.empty()) {
        const std::size_t size = std::max<std::size_t>(utf8_character(path), 1);
        const std::string_view character = path.substr(0, size);
        path.remove_prefix(size);
        if (character == "\\" ||
            (printable(character) == character && character != "%" && character != "?")) {
            out += character;
            continue;
        }
        for (const char c : character) {
            const auto octet = static_cast<unsigned char>(c);
            out += {'%', digits[octet >> 4], digits[octet & 15]};
        }
    }
    return out;
}

result<std::uint16_t> parse_port(std::string_view text)
{
    unsigned value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size() || value == 0 || value > UINT16_MAX)
        return bad("a port is a number from 1 to 65535");
    return static_cast<std::uint16_t>(value);
}

result<void> parse_query(std::string_view query, url& out)
{
    unsigned versions = 0;
    unsigned counts = 0;
    while (!query.empty()) {
        const std::size_t end = query.find('&');
        const std::string_view pair = query.substr(0, end);
        query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
        const std::size_t equals = pair.find('=');
        const std::string_view key = pair.substr(0, equals);
        if (key == "vers") {
            const std::string_view value = equals == std::string_view::npos ? "" : pair.substr(equals + 1);
            if (value != "3" && value != "4.1" && value != "4.2")
                return bad(
                    "vers is the version of NFS, 3, 4.1 or 4.2; leave it out for the server's highest");
            const nfs_version wanted = value == "3"     ? nfs_version::v3
                                       : value == "4.1" ? nfs_version::v4_1
                                                        : nfs_version::v4_2;
            if (versions++ != 0 && wanted != out.version)
                return bad("two values of vers contradict each other; leave out one of them");
            out.version = wanted;
            continue;
        }
        if (key == "nconnect") {
            const std::string_view value = equals == std::string_view::npos ? "" : pair.substr(equals + 1);
            unsigned count = 0;
            const auto [end_of, code] = std::from_chars(value.data(), value.data() + value.size(), count);
            if (code != std::errc() || end_of != value.data() + value.size() || count == 0 ||
                count > max_connections)
                return bad("nconnect is a number of connections, from 1 to 16");
            if (counts++ != 0 && count != out.connections)
                return bad("two values of nconnect contradict each other; leave out one of them");
            out.connections = count;
            continue;
        }
        if (key != "mountport" && key != "nfsport")
            return bad(
                "a URL's options are mountport=N, nfsport=N, nconnect=N and vers=3, vers=4.1 or vers=4.2");
        auto port =
            parse_port(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1));
        if (!port)
            return port.error();
        if (key == "mountport") {
            if (out.mount_port != 0 && out.mount_port != *port)
                return bad("two values of mountport contradict each other; leave out one of them");
            out.mount_port = *port;
        } else {
            if (out.port_given && out.port != *port)
                return bad(
                    "two ports of NFS, in HOST:PORT or nfsport=N, contradict each other; leave out one "
                    "of them");
            out.port = *port;
            out.port_given = true;
        }
    }
    if (out.connections != 1 && out.version == nfs_version::v3)
        return bad("nconnect is of version 4: version 3 has one connection");
    return {};
}

} // namespace

std::string_view to_string(transport_kind kind) noexcept
{
    switch (kind) {
    case transport_kind::iwarp: return "iwarp";
    case transport_kind::rdma: return "rdma";
    case transport_kind::tcp: break;
    }
    return "tcp";
}

std::string_view to_string(nfs_version version) noexcept
{
    switch (version) {
    case nfs_version::v3: return "3";
    case nfs_version::v4_1: return "4.1";
    case nfs_version::v4_2: return "4.2";
    case nfs_version::highest: break;
    }
    return "";
}

std::string url::authority(std::uint16_t for_port) const
{
    const bool v6 = host.find(':') != std::string::npos;
    return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(for_port);
}

std::string url::to_string() const
{
    return "nfs+" + std::string(cli::to_string(transport)) + "://" + printable(authority(port)) +
           encode_percent(path);
}

bool is_url(std::string_view text) noexcept
{
    const std::size_t colon = text.find("://");
    return colon != std::string_view::npos && text.substr(0, colon).find('/') == std::string_view::npos;
}

result<url> parse_url(std::string_view text)
{
    url out;
    const std::size_t colon = text.find("://");
    const std::string_view scheme = text.substr(0, colon == std::string_view::npos ? 0 : colon);
    if (scheme == "nfs+tcp" || scheme == "nfs")
        out.transport = transport_kind::tcp;
    else if (scheme == "nfs+iwarp")
        out.transport = transport_kind::iwarp;
    else if (scheme == "nfs+rdma")
        out.transport = transport_kind::rdma;
    else if (scheme == "rnbd+iwarp" || scheme == "rnbd+rdma")
        return bad(
            "that is a block device, and this command is for files: `verbena block` has those for devices");
    else
        return bad("a URL begins with nfs://, nfs+tcp://, nfs+iwarp:// or nfs+rdma://");
    out.port = out.transport == transport_kind::tcp ? tcp_port : rdma_port;
    std::string_view rest = text.substr(colon + 3);
    const std::size_t question = rest.find('?');
    const std::string_view query =
        question == std::string_view::npos ? std::string_view() : rest.substr(question + 1);
    rest = rest.substr(0, question);
    const std::size_t slash = rest.find('/');
    const std::string_view authority = rest.substr(0, slash);
    if (authority.empty())
        return bad("a URL names a host behind the two slashes");
    auto split = net::split_host_port(authority, out.port);
    if (!split)
        return split.error();
    if (split->host.empty())
        return bad("a URL names a host behind the two slashes");
    if (split->port == 0)
        return bad("a port is a number from 1 to 65535");
    out.port_given = authority.ends_with(':' + std::to_string(split->port));
    out.host = split->host;
    out.port = split->port;
    auto path = decode_percent(slash == std::string_view::npos ? "/" : rest.substr(slash));
    if (!path)
        return path.error();
    if (path->size() > max_path)
        return bad("a path has at most 4096 octets");
    out.path = std::move(*path);
    if (auto parsed = parse_query(query, out); !parsed)
        return parsed.error();
    return out;
}

} // namespace verbena::cli
