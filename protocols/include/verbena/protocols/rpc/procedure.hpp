// SPDX-License-Identifier: Apache-2.0
// RPC programs from C++ structs: what server and client share, and calling it.
//
//     struct add_args { std::uint64_t n = 0; };
//     struct add_result { std::uint64_t total = 0; };
//     inline constexpr rpc::program_definition adder{"adder", 0x20000043, 1};
//     inline constexpr rpc::procedure<add_args, add_result> add{adder, 1, "ADD", rpc::effect::changes};
//
//     const add_args five{5}; // named before co_await, for g++ 12
//     result<add_result> sum = co_await add(server, five); // `server`: a client_transport
//
// typed_program.hpp serves it. xdr/codec.hpp says what a struct may hold. docs/howto/typed.md has a whole program.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/bulk.hpp>
#include <verbena/protocols/rpc/client.hpp>
#include <verbena/protocols/rpc/message.hpp>
#include <verbena/protocols/rpc/program_error.hpp>
#include <verbena/protocols/xdr/codec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// One version of a program. `name` has static storage duration; it labels metrics and logs.
struct program_definition {
    const char* name;      ///< for metrics and logs; a literal
    std::uint32_t number;  ///< RFC 5531 8.4: 0x20000000 to 0x3fffffff are the user's own
    std::uint32_t version; ///< the one that is served

    friend constexpr bool operator==(const program_definition& a, const program_definition& b) noexcept
    {
        return a.number == b.number && a.version == b.version;
    }
};

/// What a call does that a caller might send again, as it got no reply.
enum class effect : std::uint8_t {
    none, ///< it changes nothing: a repeat runs again
    sets, ///< it sets what a repeat would set again: that runs when the first run has ended
    /// A repeat would do harm: it is answered from the duplicate-request cache. Results that this does not keep, as they have more than 4 KiB
    /// with their bulk, are lost with their reply: the repeat fails with SYSTEM_ERR. The cache is in memory: a call that ran before the
    /// server's restart runs again when it is repeated after it.
    changes,
};

namespace detail {

/// The wire form of no arguments or no results.
struct nothing {};
template<class T>
using or_nothing = std::conditional_t<std::is_void_v<T>, nothing, T>;

template<class Error>
inline constexpr bool has_error = !std::is_void_v<Error>;

/// Bytes of the results with their status, but for the bulk.
template<class Results, class Error>
inline constexpr std::size_t results_size = xdr::max_size<or_nothing<Results>> + (has_error<Error> ? 4 : 0);

template<class T>
inline constexpr bool has_bulk = xdr::payload_count<or_nothing<T>> != 0;

/// N of the bulk<N> in T; 0 where there is none.
template<class T>
constexpr std::size_t bulk_limit() noexcept
{
    if constexpr (is_bulk<T>)
        return T::limit;
    else if constexpr (xdr::payload_count<T> != 0)
        return []<class... M>(xdr::detail::types<M...>) {
            return std::max({std::size_t(0), bulk_limit<M>()...});
        }(xdr::detail::member_types<T>());
    else
        return 0;
}

// Called in the constructor of a constexpr procedure, they are no constants: the compiler names them.
inline void procedure_0_is_NULL_which_every_program_answers_by_itself() {}
inline void a_procedure_number_is_1023_at_most() {}
inline void the_duplicate_request_cache_keeps_no_results_as_large_as_these_of_effect_changes() {}

} // namespace detail

/// Arguments of more bytes, the call's bulk apart, don't compile: a stream keeps so much of a call contiguous.
inline constexpr std::size_t max_arguments = std::size_t(15) << 10;
/// The same for arguments with a bulk: what stands before it.
inline constexpr std::size_t max_arguments_before_bulk = 512;
/// Results of more bytes, the bulk apart, don't compile.
inline constexpr std::size_t max_results = std::size_t(1) << 20;
/// A bulk of more bytes doesn't compile in arguments: stream_options::max_record has room for so many by default.
inline constexpr std::size_t max_argument_bulk = std::size_t(1) << 20;
/// A bulk of more bytes doesn't compile in results: a client over TCP takes a reply of max_stream_reply.
inline constexpr std::size_t max_result_bulk = std::size_t(4) << 20;
/// Results of more bytes are not kept by the duplicate-request cache, a bulk included. Of effect::changes those that may have more without their
/// bulk don't compile.
inline constexpr std::size_t max_kept_results = 4096 - success_header_size;

/// What is told to a call beside its arguments.
struct call_options {
    /// The credential that goes with the call; auth_sys.hpp writes the body of one. Borrowed until the call returns.
    opaque_auth credential = {};
    /// Most bytes of the results' bulk, below its limit: over RDMA the caller's memory for them. Results of more fail: with
    /// EMSGSIZE over TCP, where they have come in vain, and with EOVERFLOW over RDMA.
    std::uint32_t max_bulk = UINT32_MAX;
};

/// What a procedure is called and does, without its types.
struct procedure_definition {
    program_definition program; ///< that it is part of
    std::uint32_t number;       ///< within the program, not 0
    const char* name;   ///< static storage duration: "GET", a label of metrics and the context of errors
    rpc::effect effect; ///< what a run changes

    /// Those from service_dispatcher::max_procedures on have no metrics of their own.
    static constexpr std::uint32_t max_number = 1023;
};

/// One procedure of a program: `Args` and `Results` are structs, or void; with `Error`, an enum (program_error.hpp), results are a
/// discriminated union: the status, and if that is 0, Results. A constant of static storage duration, for any thread.
template<class Args, class Results, class Error = void>
class procedure : public procedure_definition {
public:
    /// @name The types that it was made of
    /// @{
    using arguments = Args;
    using results = Results;
    using error_type = Error;
    /// @}

    /// `which` is its number in the program, `called` its name. What can't be served does not compile.
    constexpr procedure(const program_definition& of, std::uint32_t which, const char* called,
                        rpc::effect does)
        : procedure_definition{of, which, called, does}
    {
        if (which == 0)
            detail::procedure_0_is_NULL_which_every_program_answers_by_itself();
        if (which > max_number)
            detail::a_procedure_number_is_1023_at_most();
        if (does == rpc::effect::changes && detail::results_size<Results, Error> > max_kept_results)
            detail::the_duplicate_request_cache_keeps_no_results_as_large_as_these_of_effect_changes();
    }

    /// Calls it, and yields what it answered.
    ///
    /// Completes when: the reply is there. On cancel and on a deadline: as client_transport::call(). Errors: an error of
    /// the program's own, of category_of<Error>(); those of client_transport::call(); EMSGSIZE for arguments that their
    /// types don't allow, and for a bulk over call_options::max_bulk; EBADMSG for results that these types don't allow;
    /// ENOMEM when the wait for memory for the call was stopped. The context of an error made here, and of a rejection by
    /// the server, is the procedure's name. Lifetime: `server`, and what `options` point at, outlive the call; the
    /// arguments are its own, and the results the caller's. Shard: that of `server`. Room for the reply, which RDMA
    /// wants offered, follows from the types.
    template<class A = Args>
        requires(!std::is_void_v<A>)
    task<result<Results>> operator()(client_transport& server, std::type_identity_t<A> args,
                                     call_options options = {}) const
    {
        return invoke<A>(server, *this, std::move(args), options);
    }
    /// The same without arguments.
    template<class A = Args>
        requires(std::is_void_v<A>)
    task<result<Results>> operator()(client_transport& server, call_options options = {}) const
    {
        return invoke<detail::nothing>(server, *this, {}, options);
    }

private:
    using wire_arguments = detail::or_nothing<Args>;
    using wire_results = detail::or_nothing<Results>;
    static_assert(xdr::max_size<wire_arguments> <=
                      (detail::has_bulk<Args> ? max_arguments_before_bulk : max_arguments),
                  "arguments of more than 15 KiB, or more than 512 bytes before an rpc::bulk: lower their "
                  "limits, or make the "
                  "largest member an rpc::bulk<N>");
    static_assert(
        xdr::max_size<wire_results> <= max_results,
        "results of more than 1 MiB: lower their limits, or make the largest member an rpc::bulk<N>");
    static_assert(detail::bulk_limit<wire_arguments>() <= max_argument_bulk,
                  "an rpc::bulk of more than 1 MiB in arguments: servers end the connection that it comes "
                  "on; send it by "
                  "several calls");
    static_assert(
        detail::bulk_limit<wire_results>() <= max_result_bulk,
        "an rpc::bulk of more than 4 MiB in results: clients have no room for it; send it by several calls");
    static_assert(!detail::has_error<Error> ||
                      program_error<std::conditional_t<detail::has_error<Error>, Error, std::byte>>,
                  "the errors of a procedure are an enum with `constexpr bool valid(E)` and `constexpr "
                  "std::string_view "
                  "to_string(E)` beside it");

    template<class A>
    static task<result<Results>> invoke(client_transport& server, procedure_definition what, A args,
                                        call_options options);
};

namespace detail {
/// Bytes that a call over RDMA offers for a bulk in the results of a procedure that may run again, until it is seen that they do not do.
inline constexpr std::uint32_t first_bulk_room = std::uint32_t(64) << 10;
call_header header_of(const procedure_definition& what, const call_options& options) noexcept;
error bad_results(const procedure_definition& what, const xdr::decoder& in) noexcept;
/// `e`, which says what was called where it is the server's answer: "PUT: system error". What went wrong on the way has
/// a context that says more.
inline error of_call(const procedure_definition& what, const error& e) noexcept
{
    const std::error_category& c = e.code().category();
    const bool answered = c == make_error_code(accept_status::success).category() ||
                          c == make_error_code(auth_status::ok).category();
    return answered ? error(e.code(), what.name, e.detail()) : e;
}
} // namespace detail

/// @cond
template<class Args, class Results, class Error>
template<class A>
task<result<Results>> procedure<Args, Results, Error>::invoke(client_transport& server,
                                                              procedure_definition what, A args,
                                                              call_options options)
{
    lease block = co_await server.acquire(max_call_header_size + xdr::max_size<A>);
    if (!block)
        co_return error(std::errc::not_enough_memory, what.name);
    request out(std::move(block), detail::header_of(what, options));
    xdr::codec<A>::encode(out.message(), args);
    if (!out.message().ok())
        co_return error(std::errc::message_size, what.name);
    if constexpr (detail::has_bulk<Args>)
        out.attach(detail::bulk_in(args).take());
    out.max_reply = max_success_header_size + detail::results_size<Results, Error>;
    out.idempotent = what.effect != effect::changes;
    if constexpr (detail::has_bulk<Results>) {
        using item = std::remove_cvref_t<decltype(detail::bulk_in(std::declval<Results&>()))>;
        out.max_result = std::min(item::limit, options.max_bulk);
        if (out.idempotent) {
            out.may_repeat = true;
            out.first_result = detail::first_bulk_room;
        }
    }
    result<reply> answer = co_await server.call(out);
    if (!answer)
        co_return detail::of_call(what, answer.error());
    xdr::decoder& in = answer->results();
    if constexpr (detail::has_error<Error>) {
        Error status{};
        xdr::codec<Error>::decode(in, status);
        if (status != Error{}) {
            if (!in.at_end())
                co_return detail::bad_results(what, in);
            co_return error(error_code_of(status), what.name);
        }
    }
    wire_results results{};
    xdr::codec<wire_results>::decode(in, results);
    if (!in.at_end())
        co_return detail::bad_results(what, in);
    if constexpr (detail::has_bulk<Results>) {
        auto& item = detail::bulk_in(results);
        if (item.size() > options.max_bulk)
            co_return error(std::errc::message_size, what.name, item.size());
        using codec = xdr::codec<std::remove_cvref_t<decltype(item)>>;
        result<payload> bytes = answer->take(codec::awaited(item));
        if (!bytes)
            co_return bytes.error();
        codec::arrived(item, std::move(*bytes));
    }
    if constexpr (std::is_void_v<Results>)
        co_return result<void>();
    else
        co_return result<Results>(std::move(results));
}
/// @endcond

} // namespace verbena::rpc

#pragma GCC visibility pop
