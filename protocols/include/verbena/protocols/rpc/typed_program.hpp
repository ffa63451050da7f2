// SPDX-License-Identifier: Apache-2.0
// Serves a program that procedure.hpp defines:
//
//     class adder_program final : public rpc::typed_program {
//     public:
//         adder_program() : typed_program(adder)
//         {
//             on(add, [this](const add_args& a) { return add_result{total_ += a.n}; });
//         }
//     };
//
// Decoding, limits, GARBAGE_ARGS, room for results, names and metrics follow from the types. NULL is answered, PROC_UNAVAIL too.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/procedure.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {

namespace detail {
enum class no_error : std::uint8_t { ok };
template<class Error>
using or_no_error = std::conditional_t<has_error<Error>, Error, no_error>;
} // namespace detail

/// What a procedure answers: results, an error of the program's own, or what the RPC layer says instead (outcome). A handler that
/// returns any of these, or a result<Results>, returns an answer.
///
/// A verbena::error that is of category_of<Error>() is that error. GARBAGE_ARGS, PROC_UNAVAIL and AUTH_TOOWEAK (accept_status,
/// auth_status) are told to the caller; any other one is SYSTEM_ERR to it, and logged.
template<class Results, class Error = void>
class [[nodiscard]] answer {
public:
    /// What success gives; a type without members where there are no results.
    using results_type = detail::or_nothing<Results>;
    /// What failure gives; a type without values where there is no Error.
    using error_type = detail::or_no_error<Error>;

    /// Success without results.
    answer() noexcept
        requires(std::is_void_v<Results>)
        : results_(std::in_place)
    {
    }
    /// Success with these results.
    answer(results_type results) noexcept(std::is_nothrow_move_constructible_v<results_type>)
        : results_(std::move(results))
    {
    }
    /// 0 is success, of a procedure without results.
    answer(error_type status) noexcept
        requires(detail::has_error<Error>)
        : status_(status)
    {
        if constexpr (std::is_void_v<Results>) {
            if (status == error_type{})
                results_.emplace();
        }
    }
    answer(outcome how) noexcept : outcome_(how) {}
    answer(class verbena::error e) noexcept : error_(e) { take_error(); }
    answer(result<Results> r) noexcept
    {
        if (!r) {
            error_ = r.error();
            take_error();
        } else if constexpr (std::is_void_v<Results>) {
            results_.emplace();
        } else {
            results_.emplace(std::move(*r));
        }
    }

    /// For typed_program.
    std::optional<results_type>& results() noexcept { return results_; }
    error_type status() const noexcept { return status_; }
    /// What the caller is told: the reply, or nothing.
    outcome how() const noexcept { return outcome_; }
    const class verbena::error& error() const noexcept { return error_; }

private:
    void take_error() noexcept
    {
        if constexpr (detail::has_error<Error>)
            status_ = error_as<Error>(error_);
    }

    std::optional<results_type> results_;
    error_type status_{};
    outcome outcome_ = outcome::success; // of one that has neither results nor a status: what error_ says
    class verbena::error error_;
};

namespace detail {

/// How often one procedure answered with which error of the program's own. One shard writes, any thread reads.
class status_counts {
public:
    /// Errors with a count of their own; those seen later are counted together.
    static constexpr std::size_t most = 16;

    void add(std::uint32_t status) noexcept
    {
        for (auto& one : counts_) {
            const std::uint32_t of = one.status.load(std::memory_order_relaxed);
            if (of == 0)
                one.status.store(status, std::memory_order_release);
            if (of == 0 || of == status)
                return one.calls.add();
        }
        others_.add();
    }
    template<class Show>
    void for_each(Show&& show) const
    {
        for (const auto& one : counts_) {
            if (const std::uint32_t of = one.status.load(std::memory_order_acquire); of != 0)
                show(of, one.calls);
        }
        if (others_.value() != 0)
            show(0, others_);
    }

private:
    struct count {
        std::atomic<std::uint32_t> status{0}; // 0: free
        counter calls;
    };
    std::array<count, most> counts_;
    counter others_;
};

/// One procedure of a program.
class procedure_handler {
public:
    explicit procedure_handler(const procedure_definition& of) noexcept : definition(of) {}
    virtual ~procedure_handler() = default;
    virtual task<outcome> serve(call& c) = 0;
    virtual std::string_view status_name(std::uint32_t status) const = 0;

    const procedure_definition definition;
    status_counts statuses;

protected:
    /// Of an answer that has neither results nor a status of its own.
    outcome outcome_of(const call& c, const error& e) noexcept;

private:
    log_limiter failures_logged_;
};

template<class T>
inline constexpr bool is_a_task = false;
template<class T>
inline constexpr bool is_a_task<task<T>> = true;
template<class T>
struct awaited {
    using type = T;
};
template<class T>
struct awaited<task<T>> {
    using type = T;
};

template<class T>
inline constexpr bool never_true = false;

// f(c, args), f(args), f(c) or f(), whichever there is; returns not_callable if there is none.
struct not_callable {};
template<class F, class Args>
auto handle(F& f, call& c, Args& args)
{
    (void)c, (void)args;
    if constexpr (std::is_invocable_v<F&, call&, Args>)
        return f(c, std::move(args));
    else if constexpr (std::is_invocable_v<F&, Args>)
        return f(std::move(args));
    else if constexpr (std::is_same_v<Args, nothing> && std::is_invocable_v<F&, call&>)
        return f(c);
    else if constexpr (std::is_same_v<Args, nothing> && std::is_invocable_v<F&>)
        return f();
    else
        return not_callable{};
}
template<class F, class Args>
using returned_by = decltype(handle(std::declval<F&>(), std::declval<call&>(), std::declval<Args&>()));

template<class Args, class Results, class Error, class F>
class handler_of final : public procedure_handler {
public:
    handler_of(const procedure_definition& of, F f) : procedure_handler(of), f_(std::move(f)) {}

    task<outcome> serve(call& c) override
    {
        using wire_arguments = or_nothing<Args>;
        using answer_type = answer<Results, Error>;
        using returned = returned_by<F, wire_arguments>;
        wire_arguments args{};
        xdr::codec<wire_arguments>::decode(c.args(), args);
        if (!c.args().at_end())
            co_return outcome::garbage_args;
        // Before anything is done, since what was done can't be told without.
        if (c.results().room() < results_size<Results, Error>) {
            const bool reserved = co_await c.reserve_results(results_size<Results, Error>);
            if (!reserved)
                co_return outcome::system_error;
        }
        if (definition.effect == effect::changes)
            c.keep_failure();
        if constexpr (is_a_task<returned>) {
            returned running = handle(f_, c, args); // named, for g++ 12
            if constexpr (std::is_void_v<typename awaited<returned>::type>) {
                co_await running;
                co_return finish(c, answer_type());
            } else {
                answer_type a = co_await running;
                co_return finish(c, std::move(a));
            }
        } else if constexpr (std::is_void_v<returned>) {
            handle(f_, c, args);
            co_return finish(c, answer_type());
        } else {
            co_return finish(c, answer_type(handle(f_, c, args)));
        }
    }
    std::string_view status_name(std::uint32_t status) const override
    {
        if constexpr (has_error<Error>)
            return to_string(static_cast<Error>(status));
        else
            return {};
    }

private:
    outcome finish(call& c, answer<Results, Error>&& a)
    {
        if constexpr (has_error<Error>) {
            if (a.status() != Error{}) {
                xdr::codec<Error>::encode(c.results(), a.status());
                statuses.add(static_cast<std::uint32_t>(a.status()));
                return outcome::success;
            }
        }
        if (a.how() != outcome::success)
            return a.how();
        if (!a.results())
            return outcome_of(c, a.error());
        if constexpr (has_error<Error>)
            c.results().u32(0);
        using wire_results = or_nothing<Results>;
        xdr::codec<wire_results>::encode(c.results(), *a.results());
        if constexpr (has_bulk<Results>)
            c.attach(bulk_in(*a.results()).take());
        return outcome::success;
    }

    F f_;
};

// Also true of task<T> and void, for a procedure without results.
template<class Returned, class Answer, bool VoidFits>
concept fits_answer = (VoidFits && std::is_void_v<typename awaited<Returned>::type>) ||
                      std::convertible_to<typename awaited<Returned>::type, Answer>;

} // namespace detail

/// A program with a handler for each of its procedures. One object for each shard, used there alone.
class typed_program : public program {
public:
    ~typed_program() override;
    typed_program(const typed_program&) = delete;

    std::uint32_t number() const noexcept final { return definition_.number; }
    std::uint32_t low_version() const noexcept final { return definition_.version; }
    std::uint32_t high_version() const noexcept final { return definition_.version; }
    std::string_view name() const noexcept final { return definition_.name; }
    std::string_view procedure_name(std::uint32_t version, std::uint32_t procedure) const noexcept final;
    bool non_idempotent(std::uint32_t version, std::uint32_t procedure) const noexcept final;
    bool repeats_in_turn(std::uint32_t version, std::uint32_t procedure) const noexcept final;
    /// verbena_rpc_program_errors_total. A program with metrics of its own calls this too, and append()s them.
    metric_registrations expose(metric_registry& registry) const override;
    task<outcome> serve(call& c) final;

protected:
    /// For a program of this definition, a constant that outlives it. on() says in the derived class's
    /// constructor what serves each procedure.
    explicit typed_program(const program_definition& definition);

    /// Says what serves `p`, in the constructor. `f` is called as f(c, args), f(args), or without args where there are none, and
    /// returns what converts to answer<Results, Error>, or a task of that: results, an error of the program's own, a result<Results>.
    /// The handler of a procedure without results may return void.
    ///
    /// Lifetime: `f` is kept; `c` and the arguments outlive the task, so it may take them by reference. A text or list in them is
    /// the handler's own; an rpc::bulk comes when it is pulled. The task of a procedure of effect::none is asked to
    /// stop when its caller is gone; one of effect::sets or changes goes on to its end (program::goes_on_alone()). Room
    /// for results is there before `f` runs. An exception is SYSTEM_ERR, and is logged. A handler that could not pull an
    /// rpc::bulk returns that error: where the connection has ended, the call is then dropped, and the caller's repeat
    /// runs, also of effect::changes. What a procedure of
    /// effect::changes answers is kept for repeats, errors and failures (SYSTEM_ERR) too, unless the handler says
    /// c.refuse(). Throws std::logic_error for a procedure of another program, or one that has a handler.
    template<class Args, class Results, class Error, class F>
    void on(const procedure<Args, Results, Error>& p, F f)
    {
        using returned = detail::returned_by<F, detail::or_nothing<Args>>;
        if constexpr (std::is_same_v<returned, detail::not_callable>) {
            static_assert(detail::never_true<F>,
                          "a handler is called as f(rpc::call&, arguments) or f(arguments), with the "
                          "procedure's own type of arguments");
        } else if constexpr (!detail::fits_answer<returned, answer<Results, Error>,
                                                  std::is_void_v<Results>>) {
            static_assert(detail::never_true<F>, "a handler returns the procedure's results, its error or an "
                                                 "rpc::answer<Results, Error> of both, or a "
                                                 "task of one of these");
        } else {
            add_handler(std::make_unique<detail::handler_of<Args, Results, Error, F>>(p, std::move(f)));
        }
    }
    /// A member function of the program.
    template<class Args, class Results, class Error, class Program, class Returned, class... Taken>
    void on(const procedure<Args, Results, Error>& p, Returned (Program::*f)(Taken...))
    {
        on(p, [self = static_cast<Program*>(this), f](Taken... taken) -> Returned {
            return (self->*f)(std::forward<Taken>(taken)...);
        });
    }

private:
    // Long names: a short one would hide a procedure of that name in the constructor of a program.
    void add_handler(std::unique_ptr<detail::procedure_handler> handler);
    const detail::procedure_handler* handler_at(std::uint32_t version,
                                                std::uint32_t procedure) const noexcept;

    const program_definition definition_;
    std::vector<std::unique_ptr<detail::procedure_handler>> handlers_; // by number
};

} // namespace verbena::rpc

#pragma GCC visibility pop
