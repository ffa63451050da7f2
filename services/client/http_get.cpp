// SPDX-License-Identifier: Apache-2.0
#include "http_get.hpp"

#include <verbena/core/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <netdb.h>
#include <optional>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/types.h>
#include <system_error>
#include <unistd.h>

namespace verbena::cli {

namespace {

using steady = std::chrono::steady_clock;

// For the line of the status and the headers, beside the body.
constexpr std::size_t most_of_a_head = 65536;

std::string words_of_errno(int number) { return std::generic_category().message(number); }

// Until when, and who may say that it ends before.
struct http_bound {
    steady::time_point until;
    const std::function<bool()>& stops;
};

// Waits until `fd` has one of `events`; else why it has not. A signal, as of a terminal that has another size, ends no wait.
std::string wait_for(int fd, short events, const http_bound& bound)
{
    using std::chrono::milliseconds;
    constexpr milliseconds turn{50};
    constexpr milliseconds longest{3'600'000};
    for (;;) {
        if (bound.stops && bound.stops())
            return "it was stopped";
        const auto left = std::chrono::ceil<milliseconds>(bound.until - steady::now());
        const auto limit = std::clamp(left, milliseconds(0), bound.stops ? turn : longest);
        pollfd one{fd, events, 0};
        const int ready = ::poll(&one, 1, static_cast<int>(limit.count()));
        if (ready > 0)
            return {};
        if (ready < 0 && errno != EINTR)
            return words_of_errno(errno);
        if (steady::now() >= bound.until)
            return "it took too long";
    }
}

unique_fd connect_tcp(const std::string& host, const std::string& port, const http_bound& bound,
                      std::string& failed)
{
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (const int code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); code != 0) {
        failed = ::gai_strerror(code);
        return {};
    }
    unique_fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const bool begun =
        fd && (::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0 || errno == EINPROGRESS);
    int number = begun ? 0 : errno;
    ::freeaddrinfo(found);
    if (begun) {
        failed = wait_for(fd.get(), POLLOUT, bound);
        if (!failed.empty())
            return {};
        socklen_t size = sizeof number;
        (void)::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &number, &size);
    }
    if (number == 0)
        return fd;
    failed = words_of_errno(number);
    return {};
}

// Until the end, the bound or `most` bytes.
void read_to_end(int fd, std::size_t most, const http_bound& bound, http_reply& to)
{
    for (;;) {
        to.failed = wait_for(fd, POLLIN, bound);
        if (!to.failed.empty())
            return;
        char some[65536];
        const ssize_t n = ::read(fd, some, std::min(sizeof some, most - to.body.size() + 1));
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            to.failed = words_of_errno(errno);
        if (n <= 0)
            return;
        to.body.append(some, static_cast<std::size_t>(n));
        if (to.body.size() > most) {
            to.body.resize(most);
            to.is_cut = true;
            return;
        }
    }
}

// The number behind "Content-Length:" of a head; nothing: it has none, or one that is no number.
std::optional<std::uint64_t> length_in(std::string_view head)
{
    constexpr std::string_view name = "content-length:";
    const auto is_same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? char(a - 'A' + 'a') : a) == b; };
    while (!head.empty()) {
        const std::size_t end = head.find("\r\n");
        std::string_view line = head.substr(0, end);
        head.remove_prefix(end == std::string_view::npos ? head.size() : end + 2);
        if (!std::ranges::equal(line.substr(0, name.size()), name, is_same))
            continue;
        line.remove_prefix(name.size());
        line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
        std::uint64_t length = 0;
        if (std::from_chars(line.data(), line.data() + line.size(), length).ec == std::errc())
            return length;
    }
    return {};
}

} // namespace

http_reply http_get(const std::string& url, std::size_t most, std::chrono::milliseconds patience,
                    const std::function<bool()>& stops)
{
    http_reply out;
    constexpr std::string_view scheme = "http://";
    const std::size_t slash = url.find('/', scheme.size());
    const std::string authority =
        url.starts_with(scheme) ? url.substr(scheme.size(), slash - scheme.size()) : std::string();
    const std::size_t colon = authority.rfind(':');
    const bool is_odd = std::ranges::any_of(url, [](char c) { return c <= ' ' || c > '~'; });
    if (authority.empty() || colon == std::string::npos || is_odd) {
        out.failed = "no URL of metrics: " + url + "; write http://ADDRESS:PORT/metrics";
        return out;
    }
    std::string host = authority.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']'))
        host = host.substr(1, host.size() - 2);
    const http_bound bound{steady::now() + patience, stops};
    const unique_fd fd = connect_tcp(host, authority.substr(colon + 1), bound, out.failed);
    if (!fd)
        return out;
    const std::string path = slash == std::string::npos ? "/metrics" : url.substr(slash);
    const std::string request =
        "GET " + path + " HTTP/1.0\r\nHost: " + authority + "\r\nConnection: close\r\n\r\n";
    if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != ssize_t(request.size())) {
        out.failed = words_of_errno(errno);
        return out;
    }
    read_to_end(fd.get(), most + most_of_a_head, bound, out);
    // "HTTP/1.1 200 OK"
    const std::string first = out.body.substr(0, std::min<std::size_t>(out.body.find("\r\n"), 100));
    if (const std::size_t blank = first.find(' '); first.starts_with("HTTP/1.") && blank != std::string::npos)
        (void)std::from_chars(first.data() + blank + 1, first.data() + first.size(), out.status);
    const std::size_t head = out.body.find("\r\n\r\n");
    constexpr const char* cut = "it ended in the middle";
    if (out.failed.empty() && out.body.empty())
        out.failed = "it ended without an answer";
    else if (out.failed.empty() && (head == std::string::npos || out.status != 200))
        out.failed = out.status == 200 && !out.is_cut ? cut : "it answered " + first;
    else if (const auto length = length_in(std::string_view(out.body).substr(0, head));
             out.failed.empty() && !out.is_cut && length && out.body.size() - head - 4 < *length)
        out.failed = cut;
    if (head != std::string::npos)
        out.body.erase(0, head + 4);
    if (out.body.size() > most) {
        out.body.resize(most);
        out.is_cut = true;
    }
    return out;
}

} // namespace verbena::cli
