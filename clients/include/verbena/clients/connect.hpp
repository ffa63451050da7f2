// SPDX-License-Identifier: Apache-2.0
// rpc::connect(url): a client of an RPC server in one line, with all that it is made of.
//
//     auto server = co_await rpc::connect("iwarp://server.example:7042");
//     if (!server)
//         co_return server.error();
//     const auto greeting = co_await greet(*server, world);
//     co_await server->close();
//
// rpc::with_client() closes it, however its user ends. docs/howto/typed.md.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::rpc {

class dispatcher;

namespace detail {
template<class T>
struct awaited;
template<class T>
struct awaited<task<result<T>>> {
    using type = result<T>;
};
template<class T>
using awaited_t = typename awaited<T>::type;
template<class F, class C>
concept yields_result = requires { typename awaited_t<std::invoke_result_t<F&, C&>>; };
} // namespace detail

struct connect_options {
    /// Soft with 10 s and two retries: a call fails when its server was silent for 30 s. A program that shall wait as long as the server is
    /// away sets `client.hard`, and has a client_watch tell of it.
    client_options client;
    /// The most that the client's own buffers have, in bytes.
    std::size_t memory = std::size_t(64) << 20;
    /// In place of buffers of its own. Of the shard; outlives the client.
    buffer_pool* buffers = nullptr;
    /// In place of a provider of its own, for URLs with its scheme: an RDMA device chosen by name, iWARP with CRC32C, a host of a
    /// simulation ("loop://NAME"). Of the shard; outlives the client.
    verbs::context* provider = nullptr;
    /// Answers the server's own calls, which come over the same connection; nullptr: they are dropped. Outlives the client.
    dispatcher* callbacks = nullptr;
    /// tcp:// alone: as stream_client_options::reserved_port.
    bool reserved_port = false;

    connect_options() noexcept
    {
        client.hard = false;
        client.timeout = std::chrono::seconds(10);
    }
};

/// A client that owns what it is made of: its connection, the provider and the buffers, unless it was given some. It goes before the
/// shard, and after all that its calls yielded: replies and leases hold its buffers.
///
/// close() it before it goes. One that goes open ends the process with a message, as a scope with live children does: a connection can't
/// be ended without waiting.
///
/// This holds for all its tasks. Completes when, On cancel, Errors: as client_transport says. Lifetime: the client outlives them, and is
/// not moved while one runs. Shard: the client's.
class client final : public client_transport {
public:
    client(client&& other) noexcept;
    client& operator=(client&&) = delete;
    ~client() override;

    task<result<void>> connect() override;
    task<result<reply>> call(request& r) override;
    task<void> close() override;
    task<lease> acquire(std::size_t size) override;
    std::string_view name() const noexcept override;
    std::uint64_t connections() const noexcept override;
    bool answered() const noexcept override;
    duration time_of_a_call() const noexcept override;
    bool serves_calls() const noexcept override;

    /// As it was given to connect().
    const std::string& url() const noexcept;
    /// The address that it is connected to, of those that the URL's name has.
    const std::string& address() const noexcept;

private:
    struct parts;
    explicit client(std::unique_ptr<parts> made) noexcept;
    friend task<result<client>> connect(std::string url, connect_options o);
    std::unique_ptr<parts> parts_;
};

/// Connects to the server at `url` on the shard of the caller: "tcp://HOST:PORT", "iwarp://HOST:PORT", "rdma://HOST:PORT", and
/// "loop://NAME" with connect_options::provider. HOST is a name or an address, of IPv6 in brackets. A name's addresses are tried in turn.
///
/// Completes when: there is a connection, or no address has one, each of which has client_options::connect_timeout; a name is looked up on
/// a thread, which takes as long as the resolver. On cancel: ECANCELED, once a look-up has ended. Errors: EINVAL: a URL that can't be one,
/// with the rule; EADDRNOTAVAIL: a name without an address; ENOSYS: rdma:// in a build without RDMA devices; what the last attempt came to,
/// with the cure where one is known. Lifetime: what `o` names outlives the client. Shard: any, whose the client is.
task<result<client>> connect(std::string url, connect_options o = {});

/// Connects, runs the task<result<T>> that `f(client&)` returns, and closes the client when it has ended, by an exception too. Yields what it
/// yielded.
///
/// Completes when: the client is closed. On cancel: `f` hears it; the client is closed all the same. Errors: those of connect(), those of
/// `f`, and what `f` throws is thrown again. Lifetime: `f` is kept; a lambda that captures is named and moved in (g++ 12). Shard: any.
template<class F>
    requires detail::yields_result<F, client>
std::invoke_result_t<F&, client&> with_client(std::string url, F f, connect_options o = {})
{
    auto made = co_await rpc::connect(std::move(url), o);
    if (!made)
        co_return made.error();
    std::optional<detail::awaited_t<std::invoke_result_t<F&, client&>>> done;
    std::exception_ptr failure;
    try {
        auto outcome = co_await std::invoke(f, *made);
        done.emplace(std::move(outcome));
    } catch (...) {
        failure = std::current_exception();
    }
    co_await made->close();
    if (failure)
        std::rethrow_exception(failure);
    co_return std::move(*done);
}

} // namespace verbena::rpc

#pragma GCC visibility pop
