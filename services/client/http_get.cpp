// SPDX-License-Identifier: Apache-2.0
#include "http_get.hpp"

#include <verbena/core/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <netdb.h>
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

int milliseconds_until(steady::time_point until)
{
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - steady::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

unique_fd connect_tcp(const std::string& host, const std::string& port, steady::time_point until,
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
        pollfd one{fd.get(), POLLOUT, 0};
        socklen_t size = sizeof number;
        if (::poll(&one, 1, milliseconds_until(until)) != 1)
            number = ETIMEDOUT;
        else
            (void)::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &number, &size);
    }
    if (number == 0)
        return fd;
    failed = words_of_errno(number);
    return {};
}

// Until the end, `until` or `most` bytes.
void read_to_end(int fd, std::size_t most, steady::time_point until, http_reply& to)
{
    for (;;) {
        pollfd one{fd, POLLIN, 0};
        const int ready = ::poll(&one, 1, milliseconds_until(until));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            to.failed = "it took too long";
            return;
        }
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

} // namespace

http_reply http_get(const std::string& url, std::size_t most, std::chrono::milliseconds patience)
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
    const auto until = steady::now() + patience;
    const unique_fd fd = connect_tcp(host, authority.substr(colon + 1), until, out.failed);
    if (!fd)
        return out;
    const std::string path = slash == std::string::npos ? "/metrics" : url.substr(slash);
    const std::string request =
        "GET " + path + " HTTP/1.0\r\nHost: " + authority + "\r\nConnection: close\r\n\r\n";
    if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != ssize_t(request.size())) {
        out.failed = words_of_errno(errno);
        return out;
    }
    read_to_end(fd.get(), most + most_of_a_head, until, out);
    // "HTTP/1.1 200 OK"
    const std::string first = out.body.substr(0, std::min<std::size_t>(out.body.find("\r\n"), 100));
    if (const std::size_t blank = first.find(' '); first.starts_with("HTTP/1.") && blank != std::string::npos)
        (void)std::from_chars(first.data() + blank + 1, first.data() + first.size(), out.status);
    const std::size_t head = out.body.find("\r\n\r\n");
    if (out.failed.empty() && (head == std::string::npos || out.status != 200))
        out.failed = "it answered " + first;
    if (head != std::string::npos)
        out.body.erase(0, head + 4);
    if (out.body.size() > most) {
        out.body.resize(most);
        out.is_cut = true;
    }
    return out;
}

} // namespace verbena::cli
