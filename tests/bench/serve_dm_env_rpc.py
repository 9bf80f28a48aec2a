"""The typewriter served by dm_env_rpc, in its own style: its synchronous servicer and its tensors.

The argument is how many streams there will be: the synchronous server of gRPC holds a thread for
each, and one too few leaves a stream hanging.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as pb
from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc, tensor_utils
from dm_env_rpc.v1.spec_manager import SpecManager
from google.rpc.status_pb2 import Status
from paper import Paper, Typed

ACTIONS = {1: pb.TensorSpec(name="letter", dtype=pb.DataType.STRING)}
OBSERVATIONS = {
    1: pb.TensorSpec(name="paper", dtype=pb.DataType.STRING),
    2: pb.TensorSpec(name="reward", dtype=pb.DataType.DOUBLE),
}
SPECS = pb.ActionObservationSpecs(actions=ACTIONS, observations=OBSERVATIONS)


class Typewriter(dm_env_rpc_pb2_grpc.EnvironmentServicer):
    """A world with one paper for each stream."""

    def __init__(self):
        self._actions = SpecManager(ACTIONS)
        self._observations = SpecManager(OBSERVATIONS)

    def Process(self, request_iterator, context):
        """Answers the requests of one stream."""
        player = _Player(self._actions, self._observations)
        for request in request_iterator:
            yield player.answer(request)


class _Player:
    def __init__(self, actions, observations):
        self._actions = actions
        self._observations = observations
        self._paper = Paper()
        self._begins = True

    def answer(self, request):
        kind = request.WhichOneof("payload")
        response = pb.EnvironmentResponse()
        if kind == "step":
            response.step.CopyFrom(self._step(request.step))
        elif kind == "reset":
            self._begin(request.reset.settings)
            response.reset.specs.CopyFrom(SPECS)
        elif kind == "create_world":
            response.create_world.world_name = "paper"
        elif kind == "join_world":
            self._begin(request.join_world.settings)
            response.join_world.specs.CopyFrom(SPECS)
        elif kind in ("leave_world", "destroy_world"):
            getattr(response, kind).SetInParent()
        else:
            response.error.CopyFrom(Status(message=f"expected a call of a world, got {kind}"))
        return response

    def _begin(self, settings):
        self._paper.begin(str(tensor_utils.unpack_tensor(settings["target"])))
        self._begins = True

    def _step(self, request):
        """The first step of an episode shows its beginning and takes no action."""
        if self._begins:
            self._begins = False
            typed = Typed(self._paper.text, 0.0, False)
        else:
            letter = self._actions.unpack(request.actions)["letter"]
            typed = self._paper.type(str(letter))
        packed = self._observations.pack({"paper": typed.paper, "reward": np.double(typed.reward)})
        response = pb.StepResponse(
            state=pb.EnvironmentStateType.TERMINATED
            if typed.done
            else pb.EnvironmentStateType.RUNNING
        )
        for uid in request.requested_observations:
            response.observations[uid].CopyFrom(packed[uid])
        return response


def main():
    """Serves on a free port, says which on stdout, and runs until it is killed."""
    server = grpc.server(ThreadPoolExecutor(max_workers=int(sys.argv[1])))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Typewriter(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"dm_env_rpc serves on 127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    sys.exit(main())
