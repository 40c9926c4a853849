# vLLM's image with Ray. Ray and Python must be the same on every node: use this image everywhere.
FROM vllm/vllm-openai:v0.33.0
RUN pip install --no-cache-dir "ray[default]==2.60.0"
# fails the build, not the start, when the two do not go together
RUN python3 -c "import ray, vllm; assert ray.__version__ == '2.60.0', ray.__version__"
ENTRYPOINT []
