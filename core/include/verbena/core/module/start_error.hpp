// SPDX-License-Identifier: Apache-2.0
// start_error: why a program does not start now, though with the same settings it may start later.
#pragma once

#include <verbena/core/module/settings.hpp>
#include <verbena/core/result.hpp>

#pragma GCC visibility push(default)

namespace verbena {

/// What may change without anybody who edits the settings: a port that somebody has, a full disk, no memory, a folder whose disk is
/// not mounted yet. verbenad ends with status 1 then, which a service manager answers by another start, and with 2 for any other
/// config_error.
class start_error : public config_error {
public:
    using config_error::config_error;
};

/// Whether `why` is such a thing.
bool may_pass(const error& why) noexcept;

/// Throws start_error if `why` may pass, else config_error.
[[noreturn]] void throw_start_failure(const error& why, const std::string& what);

/// at_place(), which leaves a start_error what it is.
template<class F>
decltype(auto) at_place_of_start(const setting_place& place, F f)
{
    try {
        return f();
    } catch (const start_error& e) {
        if (e.has_place())
            throw;
        throw start_error(place, e.what());
    } catch (const config_error& e) {
        if (e.has_place())
            throw;
        throw config_error(place, e.what());
    }
}

} // namespace verbena

#pragma GCC visibility pop
