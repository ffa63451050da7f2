// SPDX-License-Identifier: Apache-2.0
#include "http_server.hpp"

#include "../../core/reactor/signals_blocked.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/exception.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <microhttpd.h>
#include <new>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>

namespace verbena::services {

namespace {

using reason = http_refusals::reason;

// For the headers of a request and of its answer.
constexpr std::size_t memory_of_connection = 8192;
constexpr const char* plain = "text/plain; charset=utf-8";

// libmicrohttpd has no answer to a request that is not whole.
constexpr std::string_view too_late =
    "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
    "Content-Length: 33\r\n\r\nthe request did not come in time\n";

void destroy_text(void* text) { delete static_cast<std::string*>(text); }

void on_message(void* /*unused*/, const char* format, va_list arguments)
{
    char text[256];
    std::vsnprintf(text, sizeof text, format, arguments);
    try {
        std::string_view line = text;
        while (line.ends_with('\n'))
            line.remove_suffix(1);
        log(log_level::debug, "metrics", "the HTTP server says", {{"message", line}});
    } catch (const std::exception&) { // no memory to tell it
    }
}

// Why nobody waits for the body of a request; nothing if it is short enough.
std::optional<reason> refused_body(MHD_Connection* of)
{
    if (MHD_lookup_connection_value(of, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING) != nullptr)
        return reason::no_length;
    const char* const said = MHD_lookup_connection_value(of, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (said == nullptr)
        return std::nullopt;
    const char* const end = said + std::strlen(said);
    std::uint64_t length = 0;
    const auto read = std::from_chars(said, end, length);
    if (read.ec != std::errc() || read.ptr != end || length > http_server::max_body)
        return reason::large_body;
    return std::nullopt;
}

} // namespace

// On the server's thread, but for the end of connections in the destructor, when that thread has ended.
struct http_server::calls {
    static peer* of(MHD_Connection* c)
    {
        const MHD_ConnectionInfo* const info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        return info != nullptr ? static_cast<peer*>(info->socket_context) : nullptr;
    }
    static void connection(void* self, MHD_Connection* c, void** context, MHD_ConnectionNotificationCode what)
    {
        auto& s = *static_cast<http_server*>(self);
        if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
            if (*context != nullptr)
                *static_cast<peer*>(*context) = peer();
            return;
        }
        const auto place = std::ranges::find(s.peers_, stage::none, &peer::now);
        const MHD_ConnectionInfo* const info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (place == s.peers_.end() || info == nullptr)
            return;
        place->socket = info->connect_fd;
        place->since = clock::now();
        s.enter(*place, stage::asks);
        *context = &*place;
    }
    static void completed(void* self, MHD_Connection* c, void** /*state*/, MHD_RequestTerminationCode)
    {
        if (peer* const p = of(c); p != nullptr && p->now != stage::none)
            static_cast<http_server*>(self)->enter(*p, stage::asks);
    }
    // Called for a request first when its headers are there, then for each part of its body, and at its end.
    static MHD_Result request(void* self, MHD_Connection* from, const char* path, const char* method,
                              const char* /*version*/, const char* /*body*/, std::size_t* body_size,
                              void** state)
    {
        auto& s = *static_cast<http_server*>(self);
        static char seen;
        try {
            if (*state == nullptr) {
                *state = &seen;
                const auto refused = refused_body(from);
                if (!refused)
                    return MHD_YES;
                s.count(*refused);
                s.send(from, *refused == reason::no_length
                                 ? http_answer{MHD_HTTP_LENGTH_REQUIRED, plain,
                                               "a request with a body says its length: Content-Length\n"}
                                 : http_answer{MHD_HTTP_CONTENT_TOO_LARGE, plain,
                                               "no page here takes a body; leave it out\n"});
                return MHD_YES;
            }
            if (*body_size != 0) {
                *body_size = 0; // nothing is taken
                return MHD_YES;
            }
            s.send(from, s.page_of(method, path));
            return MHD_YES;
        } catch (const std::exception&) { // no memory, and this is called by C: the connection is closed
            return MHD_NO;
        }
    }
};

void http_server::send(MHD_Connection* to, http_answer answer)
{
    peer* const of = calls::of(to);
    auto body = std::make_unique<std::string>(std::move(answer.body));
    MHD_Response* const response = MHD_create_response_from_buffer_with_free_callback_cls(
        body->size(), body->data(), destroy_text, body.get());
    if (response == nullptr)
        throw std::bad_alloc();
    (void)body.release(); // the response's
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer.type.c_str());
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (!answer.policy.empty())
        MHD_add_response_header(response, "Content-Security-Policy", answer.policy.c_str());
    if (answer.status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (of != nullptr && clock::now() - of->since >= most_.connection)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    const MHD_Result done = MHD_queue_response(to, answer.status, response);
    MHD_destroy_response(response);
    if (done != MHD_YES)
        throw std::bad_alloc();
    if (of != nullptr)
        enter(*of, stage::is_answered);
}

http_answer http_server::page_of(std::string_view method, std::string_view path) const
{
    if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD)
        return {MHD_HTTP_METHOD_NOT_ALLOWED, plain, "there are only GET and HEAD\n"};
    try {
        return pages_(path);
    } catch (...) {
        log(log_level::error, "metrics", "a page could not be made",
            {{"cause", what_of(std::current_exception())}});
        return {MHD_HTTP_INTERNAL_SERVER_ERROR, plain, "the page could not be made; the log says why\n"};
    }
}

void http_server::enter(peer& p, stage next) noexcept
{
    p.now = next;
    p.ends_at = clock::now() + (next == stage::asks ? most_.request : most_.answer);
}

void http_server::count(reason why) noexcept { refusals_.counts[std::size_t(why)].add(); }

// Ends those whose time is over, and says when the next one's is.
http_server::clock::time_point http_server::end_slow(clock::time_point now) noexcept
{
    auto next = clock::time_point::max();
    for (peer& p : peers_) {
        if (p.now == stage::none)
            continue;
        if (p.ends_at > now) {
            next = std::min(next, p.ends_at);
            continue;
        }
        count(p.now == stage::asks ? reason::slow_request : reason::slow_reader);
        if (p.now == stage::asks)
            (void)::send(p.socket, too_late.data(), too_late.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)::shutdown(p.socket, SHUT_RDWR); // which the library sees, and closes it
        p.ends_at = clock::time_point::max();
    }
    return next;
}

void http_server::run() noexcept
{
    using std::chrono::milliseconds;
    const int ready = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    auto next = clock::time_point::max();
    while (!stops_) {
        milliseconds wait(60'000);
        MHD_UNSIGNED_LONG_LONG own = 0;
        if (MHD_get_timeout(daemon_, &own) == MHD_YES)
            wait = milliseconds(std::min<MHD_UNSIGNED_LONG_LONG>(own, wait.count()));
        if (const auto now = clock::now(); next - now < wait)
            wait = std::max(std::chrono::ceil<milliseconds>(next - now), milliseconds(0));
        pollfd both[] = {{ready, POLLIN, 0}, {wakes_.get(), POLLIN, 0}};
        (void)::poll(both, 2, static_cast<int>(wait.count()));
        if (stops_)
            return;
        (void)MHD_run(daemon_);
        next = end_slow(clock::now());
    }
}

http_server::http_server(net::unique_fd listener, pages p, limits most)
    : pages_(std::move(p)), most_(most), peers_(connections_at_once)
{
    const auto where = net::endpoint::local(listener.get());
    if (!where)
        throw std::system_error(where.error().code(), "getsockname");
    port_ = where->port();
    wakes_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wakes_)
        throw std::system_error(errno, std::generic_category(), "eventfd");
    errno = 0;
    // The listener is its own from here on, if it starts.
    daemon_ = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, nullptr, nullptr, &calls::request, this,
        MHD_OPTION_EXTERNAL_LOGGER, on_message, nullptr, MHD_OPTION_LISTEN_SOCKET, listener.get(),
        MHD_OPTION_CONNECTION_LIMIT, connections_at_once, MHD_OPTION_CONNECTION_TIMEOUT, idle_seconds,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory_of_connection, MHD_OPTION_NOTIFY_CONNECTION,
        &calls::connection, this, MHD_OPTION_NOTIFY_COMPLETED, &calls::completed, this, MHD_OPTION_END);
    if (daemon_ == nullptr)
        throw std::system_error(errno == 0 ? EAGAIN : errno, std::generic_category(),
                                "no HTTP server can be had");
    (void)listener.release();
    const detail::signals_blocked blocked;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
        MHD_stop_daemon(daemon_);
        throw;
    }
}

http_server::~http_server()
{
    stops_ = true;
    const std::uint64_t one = 1;
    (void)!::write(wakes_.get(), &one, sizeof one);
    thread_.join();
    MHD_stop_daemon(daemon_);
}

metric_registrations expose(metric_registry& registry, const http_refusals& refusals)
{
    metric_registrations all;
    all.push_back(registry.add({"verbena_http_refusals_total",
                                "Requests to the metrics' port that were not answered as they asked, by why.",
                                metric_type::counter,
                                "requests",
                                {"reason"},
                                http_refusals::names.size()},
                               [&refusals](metric_sink& out) {
                                   for (std::size_t i = 0; i < http_refusals::names.size(); ++i)
                                       out.value({http_refusals::names[i]},
                                                 double(refusals.counts[i].value()));
                               }));
    return all;
}

} // namespace verbena::services
