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
#include <verbena/core/net/net.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rpc/bulk.hpp>
#include <verbena/protocols/rpc/client.hpp>
#include <verbena/protocols/xdr/members.hpp>

#include <concepts>
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
#include <vector>

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

// What holds buffers of a client, by itself or in a container of the library.
template<class T>
inline constexpr bool is_buffer =
    is_bulk<T> || std::same_as<T, lease> || std::same_as<T, payload> || std::same_as<T, reply>;
template<template<class...> class Of, class... T>
inline constexpr bool is_buffer<Of<T...>> = (is_buffer<T> || ...);

template<class T>
constexpr bool holds_buffers() noexcept;

// Stands for an initialiser of what holds buffers, but for a whole Outer.
template<class Outer>
struct buffer_initialiser {
    template<class T>
        requires(!std::is_base_of_v<T, Outer> && !xdr::detail::is_optional<T> && holds_buffers<T>())
    operator T() const noexcept
    {
        __builtin_unreachable(); // as any_initialiser's
    }
};
struct no_initialiser {};

template<class T, class Last, std::size_t... I>
constexpr bool takes_behind(std::index_sequence<I...>) noexcept
{
    return requires { T{(void(I), xdr::detail::any_initialiser<T>{})..., Last{}}; };
}

// Whether a member of T does, from the I-th on. Not by its codec: T need not have one.
template<class T, std::size_t I = 0>
constexpr bool has_buffer_member() noexcept
{
    constexpr std::make_index_sequence<I> before;
    if constexpr (takes_behind<T, buffer_initialiser<T>>(before) && !takes_behind<T, no_initialiser>(before))
        return true;
    else if constexpr (I < xdr::detail::most_members)
        return has_buffer_member<T, I + 1>();
    else
        return false;
}

template<class T>
constexpr bool holds_buffers() noexcept
{
    if constexpr (is_buffer<T>)
        return true;
    else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T>)
        return has_buffer_member<T>();
    else
        return false;
}
} // namespace detail

/// How connect() reaches a server, and what the client may take.
struct connect_options {
    /// Soft with 10 s and two retries: a call fails when its server was silent for 30 s. A program that shall wait as long as the server is
    /// away sets `client.hard`, and has a client_watch tell of it. A peer that ends three connections without ever a reply fails calls with
    /// ECONNRESET. `client.addresses`, if set, is asked in place of a resolver, and is lent as `provider` is.
    client_options client;
    /// The most that the client's own buffers have, in bytes.
    std::size_t memory = std::size_t(64) << 20;
    /// In place of buffers of its own. Of the shard; lent.
    buffer_pool* buffers = nullptr;
    /// In place of a provider of its own, for URLs with its scheme: an RDMA device chosen by name, iWARP with CRC32C, a host of a
    /// simulation ("loop://NAME"). Of the shard; lent.
    verbs::context* provider = nullptr;
    /// Answers the server's own calls, which come over the same connection; nullptr: they are dropped. Lent.
    dispatcher* callbacks = nullptr;
    /// Whose child the client's end is: its join waits until the client has gone or was closed by the stop, and has let go of what
    /// it was lent. Of the shard. A client that was lent anything has one, and the scope is joined before what was lent goes. A
    /// client without one is ended by its shard (left_behind()).
    scope* keeper = nullptr;
    /// Looks up the URL's name, in place of the system's resolver. It runs on another thread, and what it refers to outlives the shard,
    /// also with a keeper: see name_look_up.
    std::function<result<std::vector<net::endpoint>>(const std::string& name)> look_up;
    /// tcp:// alone: as stream_client_options::reserved_port.
    bool reserved_port = false;

    connect_options() noexcept
    {
        client.hard = false;
        client.timeout = std::chrono::seconds(10);
        client.connections_without_reply = 3;
    }
};

/// A client that owns what it is made of: its connection, the provider and the buffers, unless it was lent some. It goes before the
/// shard, and after all that its calls yielded: replies and leases hold its buffers.
///
/// close() it before it goes, so that what it has under way is not lost. One that goes open is closed by the shard, since a
/// destructor can't wait: its calls fail with ECANCELED, and a line in the log names its URL. When its keeper is stopped, it is
/// closed too: calls fail from then on, and there is no memory for them, nor for who waits for some then.
///
/// This holds for all its tasks. Completes when, On cancel, Errors: as client_transport says. Lifetime: the client outlives the
/// making of a task, and is not moved meanwhile; a task that has begun ends by itself. Shard: the client's.
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
    /// The address that it is connected to, or was last, of those that the URL's name has.
    const std::string& address() const noexcept;

private:
    struct parts;
    explicit client(std::shared_ptr<parts> made) noexcept;
    friend task<result<client>> connect(std::string url, connect_options o);
    static task<result<client>> made_of(std::shared_ptr<parts> p);
    static task<result<void>> connect_of(std::shared_ptr<parts> p);
    static task<result<reply>> call_of(std::shared_ptr<parts> p, request& r);
    static task<lease> acquire_of(std::shared_ptr<parts> p, std::size_t size);
    std::shared_ptr<parts> parts_;
};

/// Connects to the server at `url` on the shard of the caller: "tcp://HOST:PORT", "iwarp://HOST:PORT", "rdma://HOST:PORT", and
/// "loop://NAME" with connect_options::provider. HOST is a name or an address, of IPv6 in brackets. A name's addresses are tried in turn.
/// A connection is made anew at the address that the last one had, and where that fails the name is looked up again, so that the client
/// finds a server that has moved. A look-up that fails leaves the addresses that it had. At another address calls that were sent before
/// and may change something fail with ECONNRESET (client_options::addresses).
///
/// Completes when: there is a connection, or no address has one, each of which has client_options::connect_timeout, as the look-up of the
/// name has. On cancel: ECANCELED; a connection that was just made is closed. Errors: EINVAL: a URL that can't be one, or something
/// lent without a keeper, with the rule; EADDRNOTAVAIL: a name without an address; ENODEV: the interface behind % is not there; EAGAIN: no
/// thread can be started for a look-up or an RDMA device; ENOMEM; ENOSYS: rdma:// in a build without RDMA devices; what the last
/// attempt came to, with the cure where one is known. No exception leaves it. Lifetime: what `o` lends outlives
/// connect_options::keeper, which outlives the client. Shard: any, whose the client is.
task<result<client>> connect(std::string url, connect_options o = connect_options());

/// Connects, runs the task<result<T>> that `f(client&)` returns, and closes the client when it has ended, by an exception too. What
/// the options lend needs no keeper: nothing of the client is left when this completes, but a look-up that has begun and goes on.
/// Yields what it yielded, which is not in buffers of the client, since those go with it: an rpc::bulk, a payload, a reply or a
/// lease does not compile, nor a struct with one, also where connect_options::buffers are the caller's.
///
/// Completes when: the client is closed. On cancel: `f` hears it; the client is closed all the same. Errors: those of connect(), those of
/// `f`, and what `f` throws is thrown again. Lifetime: `f` is kept; a lambda that captures is named and moved in (g++ 12). Shard: any.
template<class F>
    requires detail::yields_result<F, client>
std::invoke_result_t<F&, client&> with_client(std::string url, F f, connect_options o = connect_options())
{
    static_assert(
        !detail::holds_buffers<typename detail::awaited_t<std::invoke_result_t<F&, client&>>::value_type>(),
        "what f yields is in buffers of the client, which goes first: copy the bytes in f");
    const task_context& context = co_await current_context();
    scope keeper(*context.shard, nullptr, nullptr, "rpc::with_client()");
    if (o.keeper == nullptr)
        o.keeper = &keeper;
    std::optional<detail::awaited_t<std::invoke_result_t<F&, client&>>> done;
    std::exception_ptr failure;
    try {
        auto made = co_await rpc::connect(std::move(url), std::move(o));
        if (made) {
            try {
                auto outcome = co_await std::invoke(f, *made);
                done.emplace(std::move(outcome));
            } catch (...) {
                failure = std::current_exception();
            }
            co_await made->close();
        } else {
            done.emplace(made.error());
        }
    } catch (...) { // there was no memory to close it; the keeper does
        if (!failure)
            failure = std::current_exception();
    }
    co_await keeper.join();
    if (failure)
        std::rethrow_exception(failure);
    co_return std::move(*done);
}

} // namespace verbena::rpc

#pragma GCC visibility pop
