// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/recovery.hpp>

#include <iterator>

namespace verbena::files {

grace_period::grace_period(std::vector<std::string> keys, time_point until)
    : keys_(std::make_move_iterator(keys.begin()), std::make_move_iterator(keys.end())),
      until_(until),
      phase_(keys_.empty() ? phase::over : phase::reclaiming)
{
}

void grace_period::complete(std::string_view key) noexcept
{
    if (const auto it = keys_.find(key); it != keys_.end())
        keys_.erase(it);
}

void grace_period::end(bool written) noexcept
{
    phase_ = written ? phase::over : phase::reclaiming;
    if (written)
        keys_.clear();
}

} // namespace verbena::files
