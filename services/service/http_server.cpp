// SPDX-License-Identifier: Apache-2.0
#include "http_server.hpp"

#include "../../core/reactor/signals_blocked.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/exception.hpp>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <microhttpd.h>
#include <system_error>
#include <utility>

namespace verbena::services {

namespace {

// For the headers of a request and of its answer.
constexpr std::size_t memory_of_connection = 8192;

void destroy_text(void* text) { delete static_cast<std::string*>(text); }

MHD_Result send(MHD_Connection* to, http_answer answer)
{
    auto body = std::make_unique<std::string>(std::move(answer.body));
    MHD_Response* const response = MHD_create_response_from_buffer_with_free_callback_cls(
        body->size(), body->data(), destroy_text, body.get());
    if (response == nullptr)
        return MHD_NO;
    (void)body.release(); // the response's
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer.type.c_str());
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (answer.status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    const MHD_Result done = MHD_queue_response(to, answer.status, response);
    MHD_destroy_response(response);
    return done;
}

http_answer page_of(const http_server::pages& pages, std::string_view method, std::string_view path)
{
    constexpr const char* plain = "text/plain; charset=utf-8";
    if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD)
        return {MHD_HTTP_METHOD_NOT_ALLOWED, plain, "there are only GET and HEAD\n"};
    try {
        return pages(path);
    } catch (...) {
        log(log_level::error, "metrics", "a page could not be made",
            {{"cause", what_of(std::current_exception())}});
        return {MHD_HTTP_INTERNAL_SERVER_ERROR, plain, "the page could not be made; the log says why\n"};
    }
}

// Called for a request first when its headers are there, then for each part of its body, and at its end.
MHD_Result on_request(void* pages, MHD_Connection* from, const char* path, const char* method,
                      const char* /*version*/, const char* /*body*/, std::size_t* body_size, void** state)
{
    static char seen;
    if (*state == nullptr) {
        *state = &seen;
        return MHD_YES;
    }
    if (*body_size != 0) {
        *body_size = 0; // nothing is taken
        return MHD_YES;
    }
    try {
        return send(from, page_of(*static_cast<const http_server::pages*>(pages), method, path));
    } catch (const std::exception&) { // no memory, and this is called by C: the connection is closed
        return MHD_NO;
    }
}

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

} // namespace

http_server::http_server(net::unique_fd listener, pages p) : pages_(std::move(p))
{
    const auto where = net::endpoint::local(listener.get());
    if (!where)
        throw std::system_error(where.error().code(), "getsockname");
    port_ = where->port();
    const detail::signals_blocked blocked;
    errno = 0;
    // The listener is its own from here on, if it starts.
    daemon_ =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0, nullptr, nullptr,
                         on_request, const_cast<pages*>(&pages_), MHD_OPTION_EXTERNAL_LOGGER, on_message,
                         nullptr, MHD_OPTION_LISTEN_SOCKET, listener.get(), MHD_OPTION_CONNECTION_LIMIT,
                         connections_at_once, MHD_OPTION_CONNECTION_TIMEOUT, idle_seconds,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory_of_connection, MHD_OPTION_END);
    if (daemon_ == nullptr)
        throw std::system_error(errno == 0 ? EAGAIN : errno, std::generic_category(),
                                "no HTTP server can be had");
    (void)listener.release();
}

http_server::~http_server() { MHD_stop_daemon(daemon_); }

} // namespace verbena::services
