// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpc/typed_program.hpp>

#include "argument_lost.hpp"

#include <stdexcept>
#include <string>

namespace verbena::rpc {
namespace {

task<outcome> answered(outcome how) { co_return how; }

} // namespace

namespace detail {

call_header header_of(const procedure_definition& what, const call_options& options) noexcept
{
    call_header header;
    header.program = what.program.number;
    header.version = what.program.version;
    header.procedure = what.number;
    header.credential = options.credential;
    return header;
}

error bad_results(const procedure_definition& what, const xdr::decoder& in) noexcept
{
    if (!in.ok())
        return in.failure();
    return error(std::errc::bad_message, what.name, in.position());
}

outcome procedure_handler::outcome_of(const call& c, const error& e) noexcept
{
    if (e == make_error_code(accept_status::garbage_arguments))
        return outcome::garbage_args;
    if (e == make_error_code(accept_status::procedure_unavailable))
        return outcome::proc_unavail;
    if (e == make_error_code(auth_status::too_weak))
        return outcome::auth_too_weak;
    if (e == argument_lost())
        return outcome::drop; // the connection is gone: the caller's repeat runs
    try {
        log_limited(failures_logged_, log_level::error, "rpc", "a procedure failed",
                    {{"program", definition.program.name},
                     {"procedure", definition.name},
                     {"client", c.from().name},
                     {"call", trace_name(c.trace())},
                     {"error", e.code() ? e.message()
                                        : std::string("it said that it succeeded, and has no results")}});
    } catch (const std::bad_alloc&) { // the caller hears of it all the same
    }
    return outcome::system_error;
}

} // namespace detail

typed_program::typed_program(const program_definition& definition) : definition_(definition) {}
typed_program::~typed_program() = default;

void typed_program::add_handler(std::unique_ptr<detail::procedure_handler> handler)
{
    const procedure_definition& what = handler->definition;
    if (what.program != definition_)
        throw std::logic_error(std::string(definition_.name) + ": " + what.name +
                               " is a procedure of another program, " + what.program.name);
    if (handlers_.size() <= what.number)
        handlers_.resize(what.number + 1);
    if (handlers_[what.number])
        throw std::logic_error(std::string(definition_.name) + ": procedure " + std::to_string(what.number) +
                               " has two handlers, of " + handlers_[what.number]->definition.name + " and " +
                               what.name);
    handlers_[what.number] = std::move(handler);
}

const detail::procedure_handler* typed_program::handler_at(std::uint32_t version,
                                                           std::uint32_t procedure) const noexcept
{
    return version == definition_.version && procedure < handlers_.size() ? handlers_[procedure].get()
                                                                          : nullptr;
}

std::string_view typed_program::procedure_name(std::uint32_t version, std::uint32_t procedure) const noexcept
{
    if (procedure == 0 && version == definition_.version)
        return "NULL";
    const auto* const handler = handler_at(version, procedure);
    return handler != nullptr ? handler->definition.name : std::string_view();
}

bool typed_program::non_idempotent(std::uint32_t version, std::uint32_t procedure) const noexcept
{
    const auto* const handler = handler_at(version, procedure);
    return handler != nullptr && handler->definition.effect == effect::changes;
}

bool typed_program::repeats_in_turn(std::uint32_t version, std::uint32_t procedure) const noexcept
{
    const auto* const handler = handler_at(version, procedure);
    return handler != nullptr && handler->definition.effect == effect::sets;
}

metric_registrations typed_program::expose(metric_registry& registry) const
{
    metric_group group(registry);
    group.add({"verbena_rpc_program_errors_total",
               "Calls answered with an error of the program's own, by its name; of programs that are defined "
               "by C++ structs.",
               metric_type::counter,
               "calls",
               {"program", "version", "procedure", "status"},
               256},
              [this](metric_sink& out) {
                  const std::string version = std::to_string(definition_.version);
                  for (const auto& handler : handlers_) {
                      if (!handler)
                          continue;
                      handler->statuses.for_each([&](std::uint32_t status, const counter& calls) {
                          const std::string_view name = status == 0 ? "other" : handler->status_name(status);
                          out.value({definition_.name, version, handler->definition.name, name},
                                    value_of(calls));
                      });
                  }
              });
    return group.take();
}

task<outcome> typed_program::serve(call& c)
{
    const std::uint32_t number = c.header().procedure;
    if (number == 0)
        return answered(c.args().at_end() ? outcome::success : outcome::garbage_args);
    if (number >= handlers_.size() || !handlers_[number])
        return answered(outcome::proc_unavail);
    return handlers_[number]->serve(c);
}

} // namespace verbena::rpc
