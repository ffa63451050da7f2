// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rtrs/path_end.hpp>

#include "path_states.hpp"

namespace verbena::rtrs {

const char* text_of(path_end e) noexcept
{
    switch (e) {
    case path_end::closed: return "closed";
    case path_end::lost: return "lost";
    case path_end::silent: return "silent";
    case path_end::bad_message: return "bad_message";
    case path_end::refused: return "refused";
    case path_end::unfinished: return "unfinished";
    case path_end::no_memory: return "no_memory";
    case path_end::stopped: return "stopped";
    case path_end::count_: break;
    }
    return "";
}

std::string_view to_string(path_end e) noexcept { return text_of(e); }

} // namespace verbena::rtrs
